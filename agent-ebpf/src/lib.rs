//! The ABI between the kernel side and the agent.
#![no_std]
