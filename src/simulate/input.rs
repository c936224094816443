//! From bytes to text: plain or gzip, told apart by content.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

const BUFFER_BYTES: usize = 128 * 1024;

/// A buffered reader of `raw`, unpacked when it begins with gzip's magic bytes, whatever its name is. Log rotation appends
/// archives to archives, so all members are read.
///
/// # Errors
/// When the first bytes cannot be read.
pub fn open<'a>(raw: impl Read + 'a) -> io::Result<Box<dyn BufRead + 'a>> {
    let mut head = [0_u8; 2];
    let mut raw = raw;
    let mut filled = 0;
    // A pipe may hand over one byte at a time, so a single fill of a buffer could miss the second.
    while filled < head.len() {
        match raw.read(&mut head[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let whole = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(head).take(filled as u64).chain(raw));
    if head == [0x1f, 0x8b] {
        return Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole))));
    }
    Ok(Box::new(whole))
}
