//! The values that a config writes as text: durations (`7d`), sizes (`4MiB`), rates (`20/h`), percentages (`5%`), a
//! limit of the disk. Each parses what it prints, and says what would have been right.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Why a text is no such value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error(
        "{0:?} is no duration: write a number and ms, s, m, h, d or w, like \"90s\", \"1h30m\" or \"7d\""
    )]
    Duration(String),
    #[error("{0:?} is no size: write a number and B, KiB, MiB, GiB or TiB, like \"4MiB\"")]
    Size(String),
    #[error("{0:?} is no rate: write a number per s, m, h or d, like \"20/h\"")]
    Rate(String),
    #[error("{0:?} is no percentage: write 0% to 100%, like \"5%\"")]
    Percent(String),
    #[error("{0:?} is no limit: write \"auto\", a percentage like \"8%\" or a size like \"20GiB\"")]
    Floor(String),
    #[error("a ring of {0} is impossible: write a power of two from 64KiB to 1GiB, like \"4MiB\"")]
    Ring(String),
}

/// A length of time, as `7d`, `1h30m`, `250ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub Duration);

/// Milliseconds of each unit, longest first.
const UNITS: [(&str, u64); 6] =
    [("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl Span {
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for Span {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::Duration(cut(text));
        let mut rest = text;
        let mut total: u64 = 0;
        let mut longest = u64::MAX;
        while !rest.is_empty() {
            let (number, after) = leading_number(rest).ok_or_else(wrong)?;
            let unit_len = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
            let (unit, after) = after.split_at(unit_len);
            let (_, millis) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
            // From long to short, each once: "1m1h" is more likely a slip than meant.
            if millis >= longest {
                return Err(wrong());
            }
            longest = millis;
            total = number.checked_mul(millis).and_then(|more| total.checked_add(more)).ok_or_else(wrong)?;
            rest = after;
        }
        if longest == u64::MAX {
            return Err(wrong());
        }
        Ok(Self(Duration::from_millis(total)))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if rest == 0 {
            return f.write_str("0s");
        }
        // "168h" is printed as "7d": weeks are read, but seldom how people think of a retention.
        for (name, millis) in UNITS {
            if name != "w" && rest >= millis {
                write!(f, "{}{name}", rest / millis)?;
                rest %= millis;
            }
        }
        Ok(())
    }
}

/// A number of bytes, as `4MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

const SIZES: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl FromStr for Size {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::Size(cut(text));
        let (number, unit) = leading_number(text).ok_or_else(wrong)?;
        let (_, bytes) = SIZES.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        number.checked_mul(bytes).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, bytes) in SIZES {
            if self.0 >= bytes && self.0.is_multiple_of(bytes) {
                return write!(f, "{}{name}", self.0 / bytes);
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// A number of times in a time, as `20/h`. `0/h` is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    pub count: u32,
    pub per: Duration,
}

const RATES: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];

impl FromStr for Rate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::Rate(cut(text));
        let (count, unit) = text.split_once('/').ok_or_else(wrong)?;
        let (_, seconds) = RATES.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let (count, "") = leading_number(count).ok_or_else(wrong)? else { return Err(wrong()) };
        Ok(Self { count: u32::try_from(count).map_err(|_| wrong())?, per: Duration::from_secs(seconds) })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = RATES.into_iter().find(|(_, seconds)| *seconds == self.per.as_secs());
        write!(f, "{}/{}", self.count, unit.map_or("s", |(name, _)| name))
    }
}

/// A share of a filesystem, in hundredths of a percent: `5%` is 500.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(pub u16);

impl Percent {
    /// This share of `whole`, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        let share = u128::from(whole) * u128::from(self.0) / 10_000;
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

impl FromStr for Percent {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::Percent(cut(text));
        let digits = text.strip_suffix('%').ok_or_else(wrong)?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let (whole, "") = leading_number(whole).ok_or_else(wrong)? else { return Err(wrong()) };
        let (parts, "") = leading_number(fraction).ok_or_else(wrong)? else { return Err(wrong()) };
        let hundredths = match fraction.len() {
            1 => parts * 10,
            2 => parts,
            _ => return Err(wrong()),
        };
        let all = whole.checked_mul(100).and_then(|all| all.checked_add(hundredths)).ok_or_else(wrong)?;
        u16::try_from(all).ok().filter(|all| *all <= 10_000).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 100, self.0 % 100) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, part) if part.is_multiple_of(10) => write!(f, "{whole}.{}%", part / 10),
            (whole, part) => write!(f, "{whole}.{part:02}%"),
        }
    }
}

/// How much of the image filesystem must stay free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Floor {
    /// The kubelet's imagefs threshold and three points more.
    Auto,
    Share(Percent),
    Bytes(Size),
}

impl FromStr for Floor {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let share = text.parse().map(Self::Share);
        share.or_else(|_| text.parse().map(Self::Bytes)).map_err(|_: ValueError| ValueError::Floor(cut(text)))
    }
}

impl fmt::Display for Floor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Share(share) => share.fmt(f),
            Self::Bytes(bytes) => bytes.fmt(f),
        }
    }
}

/// The size of the requests' ring buffer. The kernel takes a power of two that is a multiple of its page size, which
/// is at most 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ring(u32);

impl Ring {
    pub const DEFAULT: Self = Self(4 << 20);

    pub const fn bytes(self) -> u32 {
        self.0
    }
}

impl FromStr for Ring {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let Size(bytes) = text.parse()?;
        let fits = bytes.is_power_of_two() && (1 << 16..=1 << 30).contains(&bytes);
        u32::try_from(bytes).ok().filter(|_| fits).map(Self).ok_or_else(|| ValueError::Ring(cut(text)))
    }
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Size(self.0.into()).fmt(f)
    }
}

/// The digits that a text starts with, and what follows them.
fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

/// Each is a string in the config, in its schema and in JSON.
macro_rules! written_as_text {
    ($($kind:ident: $description:literal,)*) => {$(
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }

        impl schemars::JsonSchema for $kind {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($kind).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "format": $description})
            }
        }
    )*};
}

written_as_text! {
    Span: "duration",
    Size: "size",
    Rate: "rate",
    Percent: "percentage",
    Floor: "`auto`, percentage or size",
    Ring: "size",
}

/// A text where `""` turns something off.
pub(super) mod or_off {
    use std::{fmt::Display, str::FromStr};

    use super::{Deserialize as _, Deserializer, Serializer};

    pub(in crate::config) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(value),
            None => serializer.serialize_str(""),
        }
    }

    pub(in crate::config) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|error: T::Err| {
            serde::de::Error::custom(format_args!("{error}, or \"\" to turn it off"))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed<T: FromStr<Err = ValueError> + fmt::Display>(text: &str) -> Option<String> {
        text.parse::<T>().ok().map(|value| value.to_string())
    }

    #[test]
    fn durations_are_read_and_written_in_the_units_people_use() {
        for (text, seconds, printed) in [
            ("60s", 60, "1m"),
            ("168h", 604_800, "7d"),
            ("1w", 604_800, "7d"),
            ("1h30m", 5400, "1h30m"),
            ("90s", 90, "1m30s"),
            ("0s", 0, "0s"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(
                (span.get(), span.to_string().as_str()),
                (Duration::from_secs(seconds), printed),
                "{text}"
            );
        }
        assert_eq!("250ms".parse::<Span>().unwrap().get(), Duration::from_millis(250));
        for wrong in [
            "",
            "7",
            "d",
            "7 d",
            "7days",
            "-1s",
            "1m1h",
            "1h1h",
            "99999999999999999999s",
            "9999999999999999w",
        ] {
            assert_eq!(parsed::<Span>(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_rates_shares_and_limits_are_read_and_written() {
        assert_eq!(parsed::<Size>("4MiB").as_deref(), Some("4MiB"));
        assert_eq!(parsed::<Size>("2048KiB").as_deref(), Some("2MiB"));
        assert_eq!(parsed::<Size>("1500B").as_deref(), Some("1500B"));
        assert_eq!(parsed::<Size>("0B").as_deref(), Some("0B"));
        for wrong in ["4", "4MB", "4 MiB", "-4MiB", "MiB", "99999999TiB", "4.5GiB"] {
            assert_eq!(parsed::<Size>(wrong), None, "{wrong}");
        }
        assert_eq!("20/h".parse(), Ok(Rate { count: 20, per: Duration::from_secs(3600) }));
        assert_eq!(parsed::<Rate>("0/d").as_deref(), Some("0/d"));
        for wrong in ["20", "20/", "/h", "20/w", "x/h", "20h/h", "99999999999/h"] {
            assert_eq!(parsed::<Rate>(wrong), None, "{wrong}");
        }
        for (text, printed) in
            [("5%", "5%"), ("7.5%", "7.5%"), ("7.25%", "7.25%"), ("0.05%", "0.05%"), ("100%", "100%")]
        {
            assert_eq!(parsed::<Percent>(text).as_deref(), Some(printed));
        }
        for wrong in ["5", "101%", "100.01%", "-1%", "5.125%", "5.%", "%", "5 %"] {
            assert_eq!(parsed::<Percent>(wrong), None, "{wrong}");
        }
        assert_eq!(Percent(500).of(u64::MAX), u64::MAX / 20);
        assert_eq!("auto".parse(), Ok(Floor::Auto));
        assert_eq!("8%".parse(), Ok(Floor::Share(Percent(800))));
        assert_eq!("20GiB".parse(), Ok(Floor::Bytes(Size(20 << 30))));
        assert_eq!("much".parse::<Floor>(), Err(ValueError::Floor("much".into())));
    }

    #[test]
    fn a_ring_is_what_every_kernel_takes() {
        for (text, bytes) in [("64KiB", 1 << 16), ("4MiB", 4 << 20), ("1GiB", 1 << 30)] {
            assert_eq!(text.parse::<Ring>().map(Ring::bytes), Ok(bytes));
        }
        for wrong in ["0B", "4KiB", "3MiB", "65537B", "2GiB"] {
            assert_eq!(wrong.parse::<Ring>(), Err(ValueError::Ring(wrong.into())));
        }
        assert_eq!("x".parse::<Ring>(), Err(ValueError::Size("x".into())));
    }

    proptest! {
        #[test]
        fn any_text_is_a_value_or_refused(text in "[0-9a-zA-Z%/. -]{0,24}|\\PC{0,24}") {
            let _ = (text.parse::<Span>(), text.parse::<Size>(), text.parse::<Rate>());
            let _ = (text.parse::<Percent>(), text.parse::<Floor>(), text.parse::<Ring>());
        }

        #[test]
        fn what_is_printed_is_read_back(millis in 0..u64::MAX / 2, share in 0..=10_000_u16) {
            let span = Span(Duration::from_millis(millis));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
            prop_assert_eq!(Size(millis).to_string().parse(), Ok(Size(millis)));
            prop_assert_eq!(Percent(share).to_string().parse(), Ok(Percent(share)));
        }
    }
}
