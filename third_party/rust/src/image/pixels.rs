//! Samples to RGB, on white where they are transparent, and turned upright.

#![forbid(unsafe_code)]

use super::decode::Samples;
use super::metadata::Orientation;

#[derive(PartialEq)]
pub enum Opacity {
    Opaque,
    Transparent,
}

/// value × factor / 255, rounded to nearest.
fn scale(value: u8, factor: u8) -> u8 {
    ((u32::from(value) * u32::from(factor) + 127) / 255) as u8
}

/// `value` over white. Opaque values are not changed.
fn on_white(value: u8, alpha: u8) -> u8 {
    let (value, alpha) = (u32::from(value), u32::from(alpha));
    ((value * alpha + 255 * (255 - alpha) + 127) / 255) as u8
}

fn rgba_on_white(mut samples: Vec<u8>, blend: impl Fn(u8, u8) -> u8) -> (Vec<u8>, Opacity) {
    let pixels = samples.len() / 4;
    let mut opacity = Opacity::Opaque;
    for i in 0..pixels {
        let alpha = samples[4 * i + 3];
        if alpha != 255 {
            opacity = Opacity::Transparent;
        }
        for channel in 0..3 {
            samples[3 * i + channel] = blend(samples[4 * i + channel], alpha);
        }
    }
    samples.truncate(3 * pixels);
    (samples, opacity)
}

/// In place where the result is smaller than the samples.
pub fn to_rgb(samples: Samples) -> (Vec<u8>, Opacity) {
    match samples {
        Samples::Rgb(rgb) => (rgb, Opacity::Opaque),
        Samples::Grey(grey) => (grey.iter().flat_map(|&v| [v; 3]).collect(), Opacity::Opaque),
        Samples::GreyAlpha(samples) => {
            let transparent = samples.chunks_exact(2).any(|pixel| pixel[1] != 255);
            let rgb = samples.chunks_exact(2).flat_map(|pixel| [on_white(pixel[0], pixel[1]); 3]).collect();
            (rgb, if transparent { Opacity::Transparent } else { Opacity::Opaque })
        }
        Samples::Rgba(samples) => rgba_on_white(samples, on_white),
        Samples::PremultipliedRgba(samples) => {
            rgba_on_white(samples, |value, alpha| value.saturating_add(255 - alpha))
        }
        Samples::Cmyk(mut samples) => {
            let pixels = samples.len() / 4;
            for i in 0..pixels {
                let light = 255 - samples[4 * i + 3];
                for channel in 0..3 {
                    samples[3 * i + channel] = scale(255 - samples[4 * i + channel], light);
                }
            }
            samples.truncate(3 * pixels);
            (samples, Opacity::Opaque)
        }
    }
}

/// Turns [height, width, 3] as the orientation asks; orientations that swap the sides give [width, height, 3].
pub fn orient(mut rgb: Vec<u8>, width: usize, height: usize, orientation: Orientation) -> Vec<u8> {
    let row = width * 3;
    if orientation.swaps_sides() {
        let mut turned = Vec::with_capacity(rgb.len());
        for y in 0..width {
            let source_x = if orientation.from_right() { width - 1 - y } else { y };
            for x in 0..height {
                let source_y = if orientation.from_bottom() { height - 1 - x } else { x };
                let at = source_y * row + source_x * 3;
                turned.extend_from_slice(&rgb[at..at + 3]);
            }
        }
        return turned;
    }
    if orientation.from_bottom() {
        for y in 0..height / 2 {
            let (upper, lower) = rgb.split_at_mut((height - 1 - y) * row);
            upper[y * row..(y + 1) * row].swap_with_slice(&mut lower[..row]);
        }
    }
    if orientation.from_right() {
        for line in rgb.chunks_exact_mut(row) {
            for x in 0..width / 2 {
                for channel in 0..3 {
                    line.swap(3 * x + channel, 3 * (width - 1 - x) + channel);
                }
            }
        }
    }
    rgb
}
