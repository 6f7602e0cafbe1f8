//! BMP: 1 to 32 bits a pixel, palettes, bit fields and run lengths, stored upwards or downwards.

#![forbid(unsafe_code)]

use super::decode::{Failure, Gate, Samples, Stored};
use super::metadata::Orientation;

const RGB: u32 = 0;
const RLE8: u32 = 1;
const RLE4: u32 = 2;
const BIT_FIELDS: u32 = 3;
const JPEG: u32 = 4;
const PNG: u32 = 5;
const ALPHA_BIT_FIELDS: u32 = 6;

fn ends_early() -> Failure {
    Failure::Malformed("the file ends too early".to_string())
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Failure> {
    let end = at.checked_add(N).ok_or_else(ends_early)?;
    bytes.get(at..end).and_then(|slice| slice.try_into().ok()).ok_or_else(ends_early)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Failure> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Failure> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

struct Header {
    width: u32,
    height: u32,
    upwards: bool,
    bits: u16,
    compression: u32,
    pixels_at: usize,
    palette: Vec<[u8; 3]>,
    /// Red, green, blue, alpha; 0 where there is none.
    masks: [u32; 4],
}

impl Header {
    fn row_bytes(&self) -> usize {
        (self.width as usize * usize::from(self.bits)).div_ceil(32) * 4
    }

    fn color(&self, index: u8) -> Result<[u8; 3], Failure> {
        self.palette.get(usize::from(index)).copied().ok_or_else(|| {
            Failure::Malformed(format!("colour {index} of a palette of {}", self.palette.len()))
        })
    }
}

fn read_palette(bytes: &[u8], at: usize, count: usize, entry_bytes: usize) -> Result<Vec<[u8; 3]>, Failure> {
    (0..count)
        .map(|i| bytes_at(bytes, at + i * entry_bytes).map(|[blue, green, red]| [red, green, blue]))
        .collect()
}

fn read_masks(bytes: &[u8], header_bytes: usize, bits: u16, compression: u32) -> Result<[u32; 4], Failure> {
    if compression == RGB {
        return Ok(if bits == 16 { [0x7C00, 0x03E0, 0x001F, 0] } else { [0xFF_0000, 0xFF00, 0xFF, 0] });
    }
    let has_alpha = header_bytes >= 56 || compression == ALPHA_BIT_FIELDS;
    let alpha = if has_alpha { u32_at(bytes, 66)? } else { 0 };
    Ok([u32_at(bytes, 54)?, u32_at(bytes, 58)?, u32_at(bytes, 62)?, alpha])
}

fn read_header(bytes: &[u8]) -> Result<Header, Failure> {
    const FILE_HEADER: usize = 14;
    const CORE: usize = 12;
    let pixels_at = u32_at(bytes, 10)? as usize;
    let header_bytes = u32_at(bytes, FILE_HEADER)? as usize;
    let (width, height, bits, compression, declared_colors) = match header_bytes {
        CORE => {
            let (width, height) = (i32::from(u16_at(bytes, 18)?), i32::from(u16_at(bytes, 20)?));
            (width, height, u16_at(bytes, 24)?, RGB, 0)
        }
        40 | 52 | 56 | 64 | 108 | 124 => {
            let side = |at| u32_at(bytes, at).map(|value| value as i32);
            (side(18)?, side(22)?, u16_at(bytes, 28)?, u32_at(bytes, 30)?, u32_at(bytes, 46)? as usize)
        }
        other => return Err(Failure::Malformed(format!("a header of {other} bytes"))),
    };
    if width < 0 {
        return Err(Failure::Malformed(format!("a width of {width}")));
    }
    match (compression, bits) {
        (RGB, 1 | 2 | 4 | 8 | 16 | 24 | 32) | (RLE8, 8) | (RLE4, 4) => {}
        (BIT_FIELDS | ALPHA_BIT_FIELDS, 16 | 32) if header_bytes != 64 => {}
        (JPEG, _) => return Err(Failure::Unsupported("a BMP around a JPEG".to_string())),
        (PNG, _) => return Err(Failure::Unsupported("a BMP around a PNG".to_string())),
        _ => {
            let what = format!("a BMP with compression {compression} and {bits} bits a pixel");
            return Err(Failure::Unsupported(what));
        }
    }
    let (masks, palette) = if bits <= 8 {
        let most = 1usize << bits;
        let count = if declared_colors == 0 { most } else { declared_colors.min(most) };
        let entry_bytes = if header_bytes == CORE { 3 } else { 4 };
        // A short palette is one that the pixels overlap.
        let start = FILE_HEADER + header_bytes;
        let count = count.min(pixels_at.saturating_sub(start) / entry_bytes);
        ([0; 4], read_palette(bytes, start, count, entry_bytes)?)
    } else {
        (read_masks(bytes, header_bytes, bits, compression)?, Vec::new())
    };
    Ok(Header {
        width: width.unsigned_abs(),
        height: height.unsigned_abs(),
        upwards: height > 0,
        bits,
        compression,
        pixels_at,
        palette,
        masks,
    })
}

/// The bits under `mask` as 0 to 255.
fn field(pixel: u32, mask: u32) -> u8 {
    if mask == 0 {
        return 0;
    }
    let value = u64::from(pixel & mask) >> mask.trailing_zeros();
    let largest = u64::from(mask >> mask.trailing_zeros());
    (value * 255 / largest) as u8
}

/// Rows in the order they are shown.
fn rows<'a>(header: &Header, data: &'a [u8]) -> Result<Vec<&'a [u8]>, Failure> {
    let size = header.row_bytes();
    let data = data.get(..size * header.height as usize).ok_or_else(ends_early)?;
    let rows = data.chunks_exact(size);
    Ok(if header.upwards { rows.rev().collect() } else { rows.collect() })
}

fn read_indexed(header: &Header, data: &[u8]) -> Result<Samples, Failure> {
    let bits = usize::from(header.bits);
    let per_byte = 8 / bits;
    let mut rgb = Vec::with_capacity(header.width as usize * header.height as usize * 3);
    for row in rows(header, data)? {
        for x in 0..header.width as usize {
            let shift = 8 - bits * (x % per_byte + 1);
            let index = (u16::from(row[x / per_byte]) >> shift & ((1 << bits) - 1)) as u8;
            rgb.extend(header.color(index)?);
        }
    }
    Ok(Samples::Rgb(rgb))
}

fn read_direct(header: &Header, data: &[u8]) -> Result<Samples, Failure> {
    let pixel_bytes = usize::from(header.bits) / 8;
    let [red, green, blue, alpha] = header.masks;
    let channels = if alpha == 0 { 3 } else { 4 };
    let mut samples = Vec::with_capacity(header.width as usize * header.height as usize * channels);
    for row in rows(header, data)? {
        for bytes in row.chunks_exact(pixel_bytes).take(header.width as usize) {
            let pixel = bytes.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
            samples.extend([field(pixel, red), field(pixel, green), field(pixel, blue)]);
            if alpha != 0 {
                samples.push(field(pixel, alpha));
            }
        }
    }
    if alpha == 0 {
        return Ok(Samples::Rgb(samples));
    }
    // Writers that leave the alpha bits at 0 everywhere mean an opaque picture.
    if samples.chunks_exact(4).all(|pixel| pixel[3] == 0) {
        samples.chunks_exact_mut(4).for_each(|pixel| pixel[3] = 255);
    }
    Ok(Samples::Rgba(samples))
}

/// Indices of run-length coded pixels, first row first; what the runs skip is colour 0.
fn read_runs(header: &Header, data: &[u8]) -> Result<Samples, Failure> {
    let (width, height) = (header.width as usize, header.height as usize);
    let nibbles = header.compression == RLE4;
    let mut indices = vec![0u8; width * height];
    let (mut x, mut y) = (0usize, 0usize);
    let mut put = |x: usize, y: usize, index: u8| -> Result<(), Failure> {
        if x >= width || y >= height {
            return Err(Failure::Malformed("a run leaves the picture".to_string()));
        }
        let row = if header.upwards { height - 1 - y } else { y };
        indices[row * width + x] = index;
        Ok(())
    };
    let pick = |byte: u8, i: usize| match (nibbles, i % 2) {
        (false, _) => byte,
        (true, 0) => byte >> 4,
        (true, _) => byte & 15,
    };
    let mut at = 0;
    loop {
        let [count, value] = bytes_at(data, at)?;
        at += 2;
        match (count, value) {
            (0, 0) => (x, y) = (0, y + 1),
            (0, 1) => break,
            (0, 2) => {
                let [right, up] = bytes_at(data, at)?;
                at += 2;
                (x, y) = (x + usize::from(right), y + usize::from(up));
            }
            (0, literal) => {
                let pixels = usize::from(literal);
                let size = if nibbles { pixels.div_ceil(2) } else { pixels };
                let bytes = data.get(at..at + size).ok_or_else(ends_early)?;
                for i in 0..pixels {
                    put(x + i, y, pick(bytes[if nibbles { i / 2 } else { i }], i))?;
                }
                x += pixels;
                at += size.next_multiple_of(2);
            }
            (run, _) => {
                for i in 0..usize::from(run) {
                    put(x + i, y, pick(value, i))?;
                }
                x += usize::from(run);
            }
        }
    }
    let mut rgb = Vec::with_capacity(indices.len() * 3);
    for index in indices {
        rgb.extend(header.color(index)?);
    }
    Ok(Samples::Rgb(rgb))
}

pub fn decode(bytes: &[u8], gate: &Gate) -> Result<Stored, Failure> {
    let header = read_header(bytes)?;
    let compressed = matches!(header.compression, RLE8 | RLE4);
    let least_bytes = if compressed {
        0
    } else {
        let row_bytes = (u64::from(header.width) * u64::from(header.bits)).div_ceil(32) * 4;
        (header.pixels_at as u64).saturating_add(row_bytes.saturating_mul(u64::from(header.height)))
    };
    gate.admit(header.width, header.height, least_bytes)?;
    let data = bytes.get(header.pixels_at..).ok_or_else(ends_early)?;
    let samples = match (compressed, header.bits) {
        (true, _) => read_runs(&header, data),
        (false, 1..=8) => read_indexed(&header, data),
        (false, _) => read_direct(&header, data),
    }?;
    Ok(Stored {
        samples,
        width: header.width,
        height: header.height,
        details: format!("{}-bit{}", header.bits, if compressed { ", run lengths" } else { "" }),
        orientation: Orientation::UPRIGHT,
        icc: None,
        omissions: Vec::new(),
    })
}
