//! GIF: the first frame on its canvas.

#![forbid(unsafe_code)]

use gif::{ColorOutput, DecodeOptions, DecodingError, MemoryLimit};

use super::decode::{malformed, Failure, Gate, Samples, Stored};
use super::metadata::Orientation;

/// The longest string that one LZW code of 12 bits stands for, per byte.
const MAX_PIXELS_PER_BYTE: u64 = 2731;

fn failure(error: DecodingError) -> Failure {
    match error {
        DecodingError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            Failure::Malformed("the file ends too early".to_string())
        }
        other => malformed(other),
    }
}

pub fn decode(bytes: &[u8], gate: &Gate) -> Result<Stored, Failure> {
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::RGBA);
    options.check_frame_consistency(true);
    if let Some(limit) = gate.max_pixels.checked_mul(4).and_then(std::num::NonZeroU64::new) {
        options.set_memory_limit(MemoryLimit::Bytes(limit));
    }
    let mut decoder = options.read_info(bytes).map_err(failure)?;
    let (width, height) = (decoder.width(), decoder.height());
    let pixels = gate.admit(u32::from(width), u32::from(height), 0)?;
    let frame = decoder
        .next_frame_info()
        .map_err(failure)?
        .ok_or_else(|| Failure::Malformed("the file holds no frame".to_string()))?;
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let (frame_width, frame_height) = (usize::from(frame.width), usize::from(frame.height));
    let least_bytes = frame_width as u64 * frame_height as u64 / MAX_PIXELS_PER_BYTE;
    gate.admit(u32::from(frame.width), u32::from(frame.height), least_bytes)?;
    let interlaced = frame.interlaced;

    let mut data = vec![0; frame_width * frame_height * 4];
    decoder.read_into_buffer(&mut data).map_err(failure)?;
    let animated = decoder.next_frame_info().map_err(failure)?.is_some();

    let (width, height) = (usize::from(width), usize::from(height));
    if (frame_width, frame_height) != (width, height) {
        let mut canvas = vec![0; pixels * 4];
        for (y, row) in data.chunks_exact(frame_width * 4).enumerate() {
            let at = ((top + y) * width + left) * 4;
            canvas[at..at + row.len()].copy_from_slice(row);
        }
        data = canvas;
    }
    Ok(Stored {
        samples: Samples::Rgba(data),
        width: width as u32,
        height: height as u32,
        details: if interlaced { "interlaced" } else { "" }.to_string(),
        orientation: Orientation::UPRIGHT,
        icc: decoder.icc_profile().map(<[u8]>::to_vec),
        omissions: if animated { vec!["animated: first frame".to_string()] } else { Vec::new() },
    })
}
