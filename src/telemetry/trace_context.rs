//! The caller's place in a distributed trace, as W3C Trace Context has it: `traceparent: 00-<trace id>-<parent id>-<flags>`.
//!
//! It goes into the span of the request and so into its log lines; with the feature `otlp` spans are sent as children of the
//! caller's. What cannot be read is as if it were not there: a header for tracing never fails a request.

/// A caller's place in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent<'a> {
    /// 32 hex digits in lower case, not all zero.
    pub trace_id: &'a str,
    /// 16 hex digits in lower case, not all zero: the caller's span.
    pub parent_id: &'a str,
    /// The caller records this trace.
    pub sampled: bool,
}

impl<'a> TraceParent<'a> {
    /// Reads the value of a `traceparent` header. Versions to come are read as the first one, as they promise to begin like it.
    #[must_use]
    pub fn parse(value: &'a str) -> Option<Self> {
        let (version, rest) = value.split_once('-')?;
        let (trace_id, rest) = rest.split_once('-')?;
        let (parent_id, rest) = rest.split_once('-')?;
        let (flags, more) = rest.split_once('-').map_or((rest, None), |(flags, more)| (flags, Some(more)));
        if version == "ff" || (version == "00" && more.is_some()) {
            return None;
        }
        let [version, trace_id, parent_id, flags] = [(version, 2), (trace_id, 32), (parent_id, 16), (flags, 2)].map(|(text, digits)| {
            let hex = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            hex.then_some(text)
        });
        version?;
        let nonzero = |text: &&str| text.bytes().any(|byte| byte != b'0');
        let sampled = u8::from_str_radix(flags?, 16).ok()? & 1 == 1;
        Some(Self { trace_id: trace_id.filter(nonzero)?, parent_id: parent_id.filter(nonzero)?, sampled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7";

    #[test]
    fn a_parent_is_read_as_it_was_written() {
        let read = |flags: &str| TraceParent::parse(&format!("00-{TRACE}-{PARENT}-{flags}")).map(|parent| parent.sampled);
        assert_eq!([read("00"), read("01"), read("03"), read("fe")], [Some(false), Some(true), Some(true), Some(false)]);
        let text = format!("00-{TRACE}-{PARENT}-01");
        assert_eq!(TraceParent::parse(&text), Some(TraceParent { trace_id: TRACE, parent_id: PARENT, sampled: true }));
    }

    #[test]
    fn a_version_to_come_may_say_more_and_the_first_may_not() {
        let reads = |version: &str, more: &str| TraceParent::parse(&format!("{version}-{TRACE}-{PARENT}-01{more}")).is_some();
        assert_eq!([reads("01", ""), reads("cc", "-more-to-come"), reads("00", "-more"), reads("ff", "")], [true, true, false, false]);
        assert_eq!([reads("01", "x"), reads("0", ""), reads("0G", "")], [false, false, false]);
    }

    #[test]
    fn what_is_none_is_none() {
        for text in [
            String::new(),
            "00".to_owned(),
            "-".repeat(60),
            format!("00-{}-{PARENT}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{PARENT}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{PARENT}"),
            format!("00-{TRACE}-{PARENT}-1"),
            format!("00-{TRACE}-{PARENT}-zz"),
            format!("00-{TRACE}é-{PARENT}-01"),
            format!(" 00-{TRACE}-{PARENT}-01"),
        ] {
            assert_eq!(TraceParent::parse(&text), None, "{text}");
        }
    }
}
