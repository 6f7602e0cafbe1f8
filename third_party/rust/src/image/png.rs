//! PNG of every kind; of an animated one the default picture.

#![forbid(unsafe_code)]

use std::io::Cursor;

use png::{BitDepth, ColorType, Decoder, DecodingError, Limits, Transformations};

use super::decode::{malformed, Failure, Gate, Samples, Stored};
use super::metadata::Orientation;

/// Deflate's best: 258 bytes from 2 bits.
const MAX_INFLATION: u64 = 1032;
/// For everything but the pixels: a colour profile, one row.
const MAX_OTHER_BYTES: usize = 64 << 20;

fn failure(error: DecodingError) -> Failure {
    match error {
        DecodingError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Failure::Malformed("the file ends too early".to_string())
        }
        other => malformed(other),
    }
}

pub fn decode(bytes: &[u8], gate: &Gate) -> Result<Stored, Failure> {
    let mut decoder = Decoder::new_with_limits(Cursor::new(bytes), Limits { bytes: MAX_OTHER_BYTES });
    decoder.set_transformations(Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    let header = decoder.read_header_info().map_err(failure)?;
    let (width, height, interlaced) = (header.width, header.height, header.interlaced);
    let (depth, colours) = (header.bit_depth as u8, header.color_type);
    let bits = u64::from(width) * colours.samples() as u64 * u64::from(depth);
    let pixels = gate.admit(width, height, u64::from(height) * (1 + bits.div_ceil(8)) / MAX_INFLATION)?;

    let mut reader = decoder.read_info().map_err(failure)?;
    let (output, output_depth) = reader.output_color_type();
    if output_depth != BitDepth::Eight {
        return Err(Failure::Malformed(format!("{output_depth:?} bits a sample after expansion")));
    }
    let mut data = vec![0; pixels * output.samples()];
    reader.next_frame(&mut data).map_err(failure)?;
    reader.finish().map_err(failure)?;

    let samples = match output {
        ColorType::Grayscale => Samples::Grey(data),
        ColorType::GrayscaleAlpha => Samples::GreyAlpha(data),
        ColorType::Rgb => Samples::Rgb(data),
        ColorType::Rgba => Samples::Rgba(data),
        ColorType::Indexed => return Err(Failure::Malformed("a palette is missing".to_string())),
    };
    let colours = match colours {
        ColorType::Grayscale => "grey",
        ColorType::GrayscaleAlpha => "grey with alpha",
        ColorType::Rgb => "RGB",
        ColorType::Rgba => "RGBA",
        ColorType::Indexed => "palette",
    };
    let info = reader.info();
    let mut omissions = Vec::new();
    if let Some(frames) = info.animation_control.map(|control| control.num_frames).filter(|&n| n > 1) {
        omissions.push(format!("animated ({frames} frames): first frame"));
    }
    Ok(Stored {
        samples,
        width,
        height,
        details: format!("{depth}-bit {colours}{}", if interlaced { ", interlaced" } else { "" }),
        orientation: Orientation::from_exif(info.exif_metadata.as_deref()),
        icc: info.icc_profile.as_deref().map(<[u8]>::to_vec),
        omissions,
    })
}
