//! JPEG: baseline and progressive; grey, YCbCr, RGB, CMYK and YCCK.
//!
//! Bit for bit what libjpeg gives in its default settings (accurate integer transform, smooth chroma), which is what
//! models' preprocessors see; other decoders differ by up to 3 of 255 where chroma is interpolated.

#![forbid(unsafe_code)]

mod entropy;
mod headers;
mod reconstruct;

use super::decode::{Failure, Gate, Samples, Stored};
use super::metadata::Orientation;
use headers::{Colours, Frame, Segments};

/// A block of 8 × 8 pixels takes at least one bit in the scan that starts it.
const MAX_PIXELS_PER_BYTE: u64 = 512;
/// Files have about ten; each costs a walk over the picture.
const MAX_SCANS: usize = 100;

/// The coefficients of one component, in blocks of 64 in natural order.
struct Plane {
    coefficients: Vec<i16>,
    blocks_across: usize,
    blocks_down: usize,
    /// As it was when the component's first scan began.
    quantization: Option<[u16; 64]>,
}

impl Plane {
    fn new(frame: &Frame, component: usize) -> Self {
        let blocks_across = frame.mcus_across() * frame.components[component].horizontal;
        let blocks_down = frame.mcus_down() * frame.components[component].vertical;
        let coefficients = vec![0; blocks_across * blocks_down * 64];
        Plane { coefficients, blocks_across, blocks_down, quantization: None }
    }
}

pub fn decode(bytes: &[u8], gate: &Gate) -> Result<Stored, Failure> {
    let mut segments = Segments::new(bytes);
    let mut planes: Vec<Plane> = Vec::new();
    let mut scans = 0;
    while let Some(scan) = segments.next_scan()? {
        let frame = segments.frame()?;
        if planes.is_empty() {
            let least_bytes = u64::from(frame.width) * u64::from(frame.height) / MAX_PIXELS_PER_BYTE;
            gate.admit(frame.width, frame.height, least_bytes)?;
            reconstruct::check_sampling(frame)?;
            planes = (0..frame.components.len()).map(|i| Plane::new(frame, i)).collect();
        }
        scans += 1;
        if scans > MAX_SCANS {
            return Err(Failure::Unsupported(format!("a JPEG with more than {MAX_SCANS} scans")));
        }
        for part in &scan.parts {
            let plane = &mut planes[part.component];
            if plane.quantization.is_none() {
                plane.quantization = Some(segments.quantization(part.component)?);
            }
        }
        let end = entropy::decode_scan(bytes, &segments, &scan, &mut planes)?;
        segments.resume_at(end);
    }
    let frame = segments.frame()?;
    if planes.is_empty() {
        return Err(Failure::Malformed("the file holds no scan".to_string()));
    }
    let colours = segments.colours()?;
    let data = reconstruct::pixels(frame, planes, colours)?;
    let (samples, name) = match colours {
        Colours::Grey => (Samples::Grey(data), ", grey"),
        Colours::YCbCr | Colours::Rgb => (Samples::Rgb(data), ""),
        Colours::Cmyk | Colours::Ycck => (Samples::Cmyk(data), ", CMYK"),
    };
    Ok(Stored {
        samples,
        width: frame.width,
        height: frame.height,
        details: format!("{}{name}", if frame.progressive { "progressive" } else { "baseline" }),
        orientation: Orientation::from_exif(segments.exif),
        icc: segments.icc_profile(),
        omissions: Vec::new(),
    })
}
