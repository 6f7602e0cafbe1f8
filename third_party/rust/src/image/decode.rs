//! What the decoders of all formats share: limits before pixels, and what is done to the pixels afterwards.

#![forbid(unsafe_code)]

use super::metadata::{icc_note, Orientation};
use super::pixels::{self, Opacity};
use super::{bmp, gif, jpeg, png, tiff, webp};

#[derive(Clone, Copy)]
pub enum Format {
    Jpeg,
    Png,
    WebP,
    Gif,
    Bmp,
    Tiff,
}

pub enum Failure {
    Malformed(String),
    /// Well formed, but nothing here decodes it; tells what it is.
    Unsupported(String),
    /// The dimensions exceed a limit, or the file is shorter than `least_bytes`.
    Refused { width: u32, height: u32, least_bytes: u64 },
}

pub fn malformed(error: impl std::fmt::Display) -> Failure {
    Failure::Malformed(error.to_string())
}

/// Beyond `FREE_PIXELS`, where a format gives no better bound, a byte stands for at most this many pixels.
const MAX_PIXELS_PER_BYTE: u64 = 16384;
const FREE_PIXELS: u64 = 1 << 20;

/// The dimensions that are let through, asked before any pixel is decoded.
pub struct Gate {
    pub max_side: u32,
    pub max_pixels: u64,
    pub file_bytes: u64,
}

impl Gate {
    /// The number of pixels. `least_bytes` is the size below which no whole file has these dimensions.
    pub fn admit(&self, width: u32, height: u32, least_bytes: u64) -> Result<usize, Failure> {
        if width == 0 || height == 0 {
            return Err(Failure::Malformed(format!("the header says {width} x {height} pixels")));
        }
        let pixels = u64::from(width) * u64::from(height);
        let least_bytes = if pixels > FREE_PIXELS {
            least_bytes.max(pixels / MAX_PIXELS_PER_BYTE)
        } else {
            least_bytes
        };
        let fits = width <= self.max_side && height <= self.max_side && pixels <= self.max_pixels;
        if !fits || least_bytes > self.file_bytes {
            return Err(Failure::Refused { width, height, least_bytes });
        }
        usize::try_from(pixels).map_err(malformed)
    }
}

/// Samples of 8 bits as a decoder gives them, row by row without padding.
pub enum Samples {
    Grey(Vec<u8>),
    GreyAlpha(Vec<u8>),
    Rgb(Vec<u8>),
    Rgba(Vec<u8>),
    /// Alpha that the colours have been multiplied with already.
    PremultipliedRgba(Vec<u8>),
    /// 0 is no ink.
    Cmyk(Vec<u8>),
}

/// A decoded picture before it is turned upright and put on white.
pub struct Stored {
    pub samples: Samples,
    pub width: u32,
    pub height: u32,
    pub details: String,
    pub orientation: Orientation,
    pub icc: Option<Vec<u8>>,
    /// Content of the file that is left out.
    pub omissions: Vec<String>,
}

/// An upright RGB picture.
pub struct Picture {
    pub pixels: Vec<u8>,
    pub width: u32,
    pub height: u32,
    pub stored_width: u32,
    pub stored_height: u32,
    pub details: String,
    pub omissions: String,
    pub notes: String,
}

pub fn decode(bytes: &[u8], format: Format, gate: &Gate) -> Result<Picture, Failure> {
    let stored = match format {
        Format::Jpeg => jpeg::decode(bytes, gate),
        Format::Png => png::decode(bytes, gate),
        Format::WebP => webp::decode(bytes, gate),
        Format::Gif => gif::decode(bytes, gate),
        Format::Bmp => bmp::decode(bytes, gate),
        Format::Tiff => tiff::decode(bytes, gate),
    }?;
    let (width, height) = (stored.width as usize, stored.height as usize);
    let mut notes = Vec::new();
    let (rgb, opacity) = pixels::to_rgb(stored.samples);
    if rgb.len() != width * height * 3 {
        return Err(Failure::Malformed(format!("{} bytes of pixels for {width} x {height}", rgb.len())));
    }
    if opacity == Opacity::Transparent {
        notes.push("transparent parts are put on white".to_string());
    }
    if let Some(note) = stored.icc.as_deref().and_then(icc_note) {
        notes.push(note);
    }
    if stored.orientation != Orientation::UPRIGHT {
        notes.push(format!("turned by EXIF orientation {}", stored.orientation.tag()));
    }
    let upright = pixels::orient(rgb, width, height, stored.orientation);
    let (shown_width, shown_height) = if stored.orientation.swaps_sides() {
        (stored.height, stored.width)
    } else {
        (stored.width, stored.height)
    };
    Ok(Picture {
        pixels: upright,
        width: shown_width,
        height: shown_height,
        stored_width: stored.width,
        stored_height: stored.height,
        details: stored.details,
        omissions: stored.omissions.join("\n"),
        notes: notes.join("\n"),
    })
}
