//! TIFF: the first page, with 1 to 16 bits a sample.

#![forbid(unsafe_code)]

use std::io::Cursor;

use tiff::decoder::{Decoder, DecodingResult, Limits};
use tiff::tags::Tag;
use tiff::{ColorType, TiffError};

use super::decode::{malformed, Failure, Gate, Samples, Stored};
use super::metadata::{tiff_has_text_beyond, Orientation};

fn failure(error: TiffError) -> Failure {
    match error {
        TiffError::UnsupportedError(what) => {
            let what = what.to_string();
            Failure::Unsupported(format!("a TIFF of an unusual kind ({})", what.trim_end_matches('.')))
        }
        TiffError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Failure::Malformed("the file ends too early".to_string())
        }
        other => malformed(other),
    }
}

/// Samples of 1, 2 or 4 bits, rows padded to bytes, as 8 bits over the full range.
fn unpack(packed: &[u8], width: usize, bits: u8) -> Vec<u8> {
    let row_bytes = (width * usize::from(bits)).div_ceil(8);
    let per_byte = 8 / usize::from(bits);
    let largest = (1u16 << bits) - 1;
    let mut samples = Vec::with_capacity(packed.len() / row_bytes * width);
    for row in packed.chunks_exact(row_bytes) {
        samples.extend((0..width).map(|x| {
            let shift = 8 - usize::from(bits) * (x % per_byte + 1);
            ((u16::from(row[x / per_byte]) >> shift & largest) * 255 / largest) as u8
        }));
    }
    samples
}

pub fn decode(bytes: &[u8], gate: &Gate) -> Result<Stored, Failure> {
    const UNCOMPRESSED: u16 = 1;
    const SEPARATE_PLANES: u16 = 2;
    const PREMULTIPLIED: u16 = 1;
    const UNASSOCIATED: u16 = 2;

    let mut limits = Limits::default();
    if tiff_has_text_beyond(bytes, limits.decoding_buffer_size as u64) {
        return Err(Failure::Malformed("a text is longer than the file".to_string()));
    }
    limits.decoding_buffer_size = usize::try_from(gate.max_pixels.saturating_mul(8)).map_err(malformed)?;
    limits.intermediate_buffer_size = limits.decoding_buffer_size;
    limits.ifd_value_size = 16 << 20;
    let mut decoder = Decoder::new(Cursor::new(bytes)).map_err(failure)?.with_limits(limits);
    let (width, height) = decoder.dimensions().map_err(failure)?;
    let colours = decoder.colortype().map_err(failure)?;
    let samples_per_pixel = colours.num_samples();
    let bits = colours.bit_depth();
    let compression = decoder.find_tag_unsigned::<u16>(Tag::Compression).map_err(failure)?;
    let least_bytes = if compression.unwrap_or(UNCOMPRESSED) == UNCOMPRESSED {
        let row_bits = u64::from(width) * u64::from(samples_per_pixel) * u64::from(bits);
        row_bits.div_ceil(8).saturating_mul(u64::from(height))
    } else {
        0
    };
    let pixels = gate.admit(width, height, least_bytes)?;
    let planes = decoder.find_tag_unsigned::<u16>(Tag::PlanarConfiguration).map_err(failure)?;
    if planes == Some(SEPARATE_PLANES) && samples_per_pixel > 1 {
        return Err(Failure::Unsupported("a TIFF with separate colour planes".to_string()));
    }
    let extra = decoder.find_tag_unsigned_vec::<u16>(Tag::ExtraSamples).map_err(failure)?;
    let alpha = extra.and_then(|kinds| kinds.first().copied());

    let data = match decoder.read_image().map_err(failure)? {
        DecodingResult::U8(data) if matches!(bits, 1 | 2 | 4) && samples_per_pixel == 1 => {
            unpack(&data, width as usize, bits)
        }
        DecodingResult::U8(data) if bits == 8 => data,
        DecodingResult::U16(data) if bits == 16 => data.iter().map(|&v| (v >> 8) as u8).collect(),
        _ => {
            let what = format!("a TIFF with {bits} bits a sample that are not plain integers");
            return Err(Failure::Unsupported(what));
        }
    };
    if data.len() != pixels * usize::from(samples_per_pixel) {
        return Err(Failure::Malformed(format!("{} samples for {width} x {height} pixels", data.len())));
    }
    let (samples, name) = match colours {
        ColorType::Gray(_) => (Samples::Grey(data), "grey"),
        ColorType::Multiband { num_samples: 2, .. } if alpha == Some(UNASSOCIATED) => {
            (Samples::GreyAlpha(data), "grey with alpha")
        }
        ColorType::RGB(_) => (Samples::Rgb(data), "RGB"),
        ColorType::RGBA(_) if alpha == Some(PREMULTIPLIED) => (Samples::PremultipliedRgba(data), "RGBA"),
        ColorType::RGBA(_) => (Samples::Rgba(data), "RGBA"),
        ColorType::CMYK(_) => (Samples::Cmyk(data), "CMYK"),
        other => return Err(Failure::Unsupported(format!("a TIFF with other colours ({other:?})"))),
    };
    let orientation = decoder.find_tag_unsigned::<u16>(Tag::Orientation).map_err(failure)?;
    let icc = decoder.find_tag(Tag::IccProfile).map_err(failure)?.and_then(|value| value.into_u8_vec().ok());
    let mut omissions = Vec::new();
    if decoder.more_images() {
        omissions.push("several pages: first page".to_string());
    }
    Ok(Stored {
        samples,
        width,
        height,
        details: format!("{bits}-bit {name}"),
        orientation: orientation.map_or(Orientation::UPRIGHT, Orientation::from_tag),
        icc,
        omissions,
    })
}
