//! From the kernel's clock to wall-clock time, and how times are written.

use std::{borrow::Cow, fmt};

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::probe::record::Boottime;

/// Ticks a second in /proc/PID/stat: USER_HZ, 100 on every architecture that imgwarden runs on.
const TICKS: u64 = 100;

/// When this machine was booted, by the wall clock of now. Read it afresh for each use: a node without a battery clock
/// starts in the past, and jumps when the time is first synchronised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    boot: Timestamp,
}

impl Clock {
    pub fn now() -> Self {
        Self::booted_before(Timestamp::now(), Self::uptime())
    }

    /// A clock by which `uptime` has passed at `now`.
    pub fn booted_before(now: Timestamp, uptime: Boottime) -> Self {
        Self { boot: now.saturating_sub(nanoseconds(uptime.0)).unwrap_or(Timestamp::UNIX_EPOCH) }
    }

    /// CLOCK_BOOTTIME.
    pub fn uptime() -> Boottime {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
        Boottime(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
    }

    /// The wall-clock time of a kernel time.
    pub fn at(&self, time: Boottime) -> Timestamp {
        self.boot.saturating_add(nanoseconds(time.0)).unwrap_or(Timestamp::MAX)
    }

    /// The kernel time of a wall-clock time; 0 for times before the boot.
    pub fn uptime_at(&self, time: Timestamp) -> Boottime {
        let passed = time.duration_since(self.boot).as_nanos();
        Boottime(u64::try_from(passed.max(0)).unwrap_or(u64::MAX))
    }

    /// The wall-clock time of a process' start. It is known to 10 ms, and is rounded to that: two readings of the
    /// clock differ by microseconds, and the start of one process should be one text in all events.
    pub fn started(&self, ticks: u64) -> Time {
        const TICK: i128 = 10_000_000;
        let exact = self.at(Boottime(ticks.saturating_mul(1_000_000_000 / TICKS))).as_nanosecond();
        Time(Timestamp::from_nanosecond((exact + TICK / 2).div_euclid(TICK) * TICK).unwrap_or(Timestamp::MAX))
    }
}

fn nanoseconds(count: u64) -> SignedDuration {
    SignedDuration::from_nanos(i64::try_from(count).unwrap_or(i64::MAX))
}

/// A time as events carry it: RFC 3339, UTC, always nine digits after the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
pub struct Time(pub Timestamp);

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        Self(time)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.9}", self.0)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "RFC 3339, UTC, nanoseconds.",
            "format": "date-time",
            "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{9}Z$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_time_becomes_wall_clock_time_and_back() {
        let now: Timestamp = "2026-01-02T03:04:05.678901234Z".parse().unwrap();
        let clock = Clock::booted_before(now, Boottime(5_678_901_234));
        assert_eq!(Time(clock.at(Boottime(0))).to_string(), "2026-01-02T03:04:00.000000000Z");
        assert_eq!(clock.at(Boottime(5_678_901_234)), now);
        assert_eq!(clock.uptime_at(now), Boottime(5_678_901_234));
        assert_eq!(clock.uptime_at(Timestamp::UNIX_EPOCH), Boottime(0));
    }

    #[test]
    fn a_start_is_the_same_text_by_two_readings_of_the_clock() {
        let now: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let one = Clock::booted_before(now, Boottime(1_000_000_000));
        let two = Clock::booted_before(now, Boottime(1_000_001_234));
        assert_eq!(one.started(4242), two.started(4242));
    }
}
