//! Orientation from EXIF, and the name of a colour profile.

#![forbid(unsafe_code)]

/// EXIF orientation, 1 to 8.
#[derive(Clone, Copy, PartialEq)]
pub struct Orientation(u8);

impl Orientation {
    pub const UPRIGHT: Orientation = Orientation(1);

    /// Values that the standard does not define count as upright.
    pub fn from_tag(tag: u16) -> Self {
        match u8::try_from(tag) {
            Ok(value @ 1..=8) => Orientation(value),
            _ => Orientation::UPRIGHT,
        }
    }

    /// From an EXIF block: a TIFF header with directories, with or without "Exif\0\0" in front.
    pub fn from_exif(exif: Option<&[u8]>) -> Self {
        exif.and_then(orientation_tag).map_or(Orientation::UPRIGHT, Orientation::from_tag)
    }

    pub fn tag(self) -> u8 {
        self.0
    }

    pub fn swaps_sides(self) -> bool {
        self.0 >= 5
    }

    /// The first column shown is the last one stored, or (sides swapped) the first row the last column.
    pub fn from_right(self) -> bool {
        matches!(self.0, 2 | 3 | 7 | 8)
    }

    /// The first row shown is the last one stored, or (sides swapped) the first column the last row.
    pub fn from_bottom(self) -> bool {
        matches!(self.0, 3 | 4 | 6 | 7)
    }
}

/// Integers at checked offsets of a byte slice.
#[derive(Clone, Copy)]
struct Reader<'a> {
    bytes: &'a [u8],
    big_endian: bool,
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    fn u16(&self, at: usize) -> Option<u16> {
        let bytes = self.take(at)?;
        Some(if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    fn u32(&self, at: usize) -> Option<usize> {
        let bytes = self.take(at)?;
        let value = if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        usize::try_from(value).ok()
    }

    fn u64(&self, at: usize) -> Option<u64> {
        let bytes = self.take(at)?;
        Some(if self.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) })
    }

    fn slice(&self, at: usize, size: usize) -> Option<&'a [u8]> {
        self.bytes.get(at..at.checked_add(size)?)
    }
}

fn orientation_tag(exif: &[u8]) -> Option<u16> {
    const ORIENTATION: u16 = 0x0112;
    const SHORT: u16 = 3;
    let bytes = exif.strip_prefix(b"Exif\0\0").unwrap_or(exif);
    let reader = Reader { bytes, big_endian: bytes.starts_with(b"MM") };
    if !(bytes.starts_with(b"II") || bytes.starts_with(b"MM")) || reader.u16(2)? != 42 {
        return None;
    }
    let directory = reader.u32(4)?;
    (0..usize::from(reader.u16(directory)?))
        .map(|i| directory + 2 + 12 * i)
        .find(|&entry| reader.u16(entry) == Some(ORIENTATION) && reader.u16(entry + 2) == Some(SHORT))
        .and_then(|entry| reader.u16(entry + 8))
}

/// Whether a text in the first directory of a TIFF says that it is longer than `limit` bytes. The decoder
/// refuses such a text too, but writes a line to standard error before it does.
pub fn tiff_has_text_beyond(bytes: &[u8], limit: u64) -> bool {
    text_beyond(bytes, limit).unwrap_or(false)
}

fn text_beyond(bytes: &[u8], limit: u64) -> Option<bool> {
    const ASCII: u16 = 2;
    const BIG: u16 = 43;
    let reader = Reader { bytes, big_endian: bytes.starts_with(b"MM") };
    let big = reader.u16(2)? == BIG;
    let directory = if big { usize::try_from(reader.u64(8)?).ok()? } else { reader.u32(4)? };
    let (entries, first, size) = if big {
        (usize::try_from(reader.u64(directory)?).ok()?, directory.checked_add(8)?, 20)
    } else {
        (usize::from(reader.u16(directory)?), directory.checked_add(2)?, 12)
    };
    for entry in (first..bytes.len()).step_by(size).take(entries) {
        let count = if big { reader.u64(entry + 4)? } else { reader.u32(entry + 4)? as u64 };
        if reader.u16(entry + 2)? == ASCII && count > limit {
            return Some(true);
        }
    }
    Some(false)
}

/// The text of the profile's description: ASCII in version 2, the first UTF-16 record in version 4.
fn icc_description(profile: &[u8]) -> Option<String> {
    const MAX_TAGS: usize = 100;
    let reader = Reader { bytes: profile, big_endian: true };
    let tag = (0..reader.u32(128)?.min(MAX_TAGS))
        .map(|i| 132 + 12 * i)
        .find(|&entry| reader.slice(entry, 4) == Some(b"desc"))?;
    let at = reader.u32(tag + 4)?;
    match reader.slice(at, 4)? {
        b"desc" => {
            let text = reader.slice(at.checked_add(12)?, reader.u32(at + 8)?)?;
            Some(String::from_utf8_lossy(text).trim_end_matches('\0').to_string())
        }
        b"mluc" => {
            let (size, offset) = (reader.u32(at + 20)?, reader.u32(at + 24)?);
            let text = reader.slice(at.checked_add(offset)?, size)?;
            let units: Vec<u16> = text.chunks_exact(2).map(|c| u16::from_be_bytes([c[0], c[1]])).collect();
            Some(String::from_utf16_lossy(&units).trim_end_matches('\0').to_string())
        }
        _ => None,
    }
}

/// What to tell about an embedded profile; nothing when it is sRGB by its name.
pub fn icc_note(profile: &[u8]) -> Option<String> {
    let name = icc_description(profile).unwrap_or_default();
    if name.contains("sRGB") {
        return None;
    }
    let name = if name.is_empty() { "without a name".to_string() } else { format!("\"{name}\"") };
    Some(format!("colour profile {name} not converted, colours are read as sRGB"))
}
