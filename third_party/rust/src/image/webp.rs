//! WebP, lossy and lossless, with and without alpha; of an animated one the first frame.

#![forbid(unsafe_code)]

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};

use super::decode::{malformed, Failure, Gate, Samples, Stored};
use super::metadata::Orientation;

fn failure(error: DecodingError) -> Failure {
    match error {
        DecodingError::IoError(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Failure::Malformed("the file ends too early".to_string())
        }
        other => malformed(other),
    }
}

/// The RIFF header holds the size of the rest; the decoder does not notice that the end is missing.
fn check_size(bytes: &[u8]) -> Result<(), Failure> {
    let declared = match bytes.get(4..8) {
        Some(&[a, b, c, d]) => 8 + u64::from(u32::from_le_bytes([a, b, c, d])),
        _ => return Err(Failure::Malformed("the file ends too early".to_string())),
    };
    if declared > bytes.len() as u64 {
        let actual = bytes.len();
        return Err(Failure::Malformed(format!("the file ends after {actual} of {declared} bytes")));
    }
    Ok(())
}

pub fn decode(bytes: &[u8], gate: &Gate) -> Result<Stored, Failure> {
    const MAX_METADATA_BYTES: usize = 16 << 20;
    check_size(bytes)?;
    let mut decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(failure)?;
    let (width, height) = decoder.dimensions();
    let pixels = gate.admit(width, height, 0)?;
    decoder.set_memory_limit(MAX_METADATA_BYTES);
    let alpha = decoder.has_alpha();
    let mut omissions = Vec::new();
    if decoder.is_animated() {
        decoder.set_background_color([255; 4]).map_err(failure)?;
        omissions.push(format!("animated ({} frames): first frame", decoder.num_frames()));
    }
    let mut data = vec![0; pixels * if alpha { 4 } else { 3 }];
    decoder.read_image(&mut data).map_err(failure)?;
    let kind = if decoder.is_lossy() { "lossy" } else { "lossless" };
    Ok(Stored {
        samples: if alpha { Samples::Rgba(data) } else { Samples::Rgb(data) },
        width,
        height,
        details: format!("{kind}{}", if alpha { " with alpha" } else { "" }),
        orientation: Orientation::from_exif(decoder.exif_metadata().map_err(failure)?.as_deref()),
        icc: decoder.icc_profile().map_err(failure)?,
        omissions,
    })
}
