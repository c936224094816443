//! Which slot of a cluster a key lies in: CRC-16 (XMODEM) of what is between its first braces, or of all of it.

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of `key`.
pub(super) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag).filter(|tag| !tag.is_empty());
    tag.unwrap_or(key).bytes().fold(0_u16, step) % SLOTS
}

fn step(crc: u16, byte: u8) -> u16 {
    (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // The check value of the CRC, and slots that a server named (CLUSTER KEYSLOT).
        assert_eq!(slot_of("123456789"), 0x31C3);
        assert_eq!((slot_of("foo"), slot_of("ratelimit:token:{foo}:route:x")), (12_182, 12_182));
        assert_eq!(slot_of("{}foo"), "{}foo".bytes().fold(0, step) % SLOTS);
    }
}
