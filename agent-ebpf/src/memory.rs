//! Reading memory in ways that the verifiers of 5.10 to 6.18 accept.

use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_get_current_task_btf, bpf_probe_read_kernel};

use crate::layout::TYPED;

/// A kernel address. Null is a value like others: reading it fails.
pub type Address = *const u8;

/// Keeps `value` within `MASK` so that the verifier knows it. LLVM would drop the mask where it can prove the bound
/// itself, which 6.1's verifier can't; a value read back from the stack hides the proof from LLVM only.
#[inline(always)]
pub fn bound<const MASK: u64>(value: u64) -> u64 {
    let spilled = value;
    // SAFETY: it is our own initialised variable.
    (unsafe { core::ptr::read_volatile(&raw const spilled) }) & MASK
}

/// The value at `base + offset` of kernel memory, by helper: any address may be tried.
#[inline(always)]
pub fn kernel<T: Copy>(base: Address, offset: u32) -> Option<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: the helper checks the source; the destination is our own and as large as said.
    let failed = unsafe {
        bpf_probe_read_kernel(
            value.as_mut_ptr().cast(),
            size_of::<T>() as u32,
            base.wrapping_add(offset as usize).cast(),
        )
    };
    // SAFETY: the helper filled it, and T is a number or pointer.
    if failed == 0 { Some(unsafe { value.assume_init() }) } else { None }
}

/// A pointer in kernel memory that must not be null.
#[inline(always)]
pub fn pointer(base: Address, offset: u32) -> Option<Address> {
    kernel::<Address>(base, offset).filter(|pointer| !pointer.is_null())
}

/// As `kernel`, for a base whose type the verifier knows (it came from the current task or a tracepoint's argument
/// through BTF): no helper call where the kernel allows that. `base` must not be null.
#[inline(always)]
pub fn typed<T: Copy>(base: Address, offset: u32) -> Option<T> {
    if TYPED.load() == 1 {
        // SAFETY: the verifier checks that the offset lies in the type; a fault reads as zero.
        Some(unsafe { core::ptr::read_volatile(base.add(offset as usize).cast::<T>()) })
    } else {
        kernel(base, offset)
    }
}

#[inline(always)]
pub fn typed_pointer(base: Address, offset: u32) -> Option<Address> {
    typed::<Address>(base, offset).filter(|pointer| !pointer.is_null())
}

/// The running task.
#[inline(always)]
pub fn current() -> Address {
    // SAFETY: both helpers only return the current task's address.
    unsafe {
        if TYPED.load() == 1 {
            bpf_get_current_task_btf() as Address
        } else {
            bpf_get_current_task() as Address
        }
    }
}
