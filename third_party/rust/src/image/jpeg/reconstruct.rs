//! Coefficients to pixels: inverse transform, chroma to full size, colours. All in libjpeg's integer arithmetic.

#![forbid(unsafe_code)]

use super::headers::{malformed, Colours, Frame};
use super::Plane;
use crate::image::decode::Failure;

const CONSTANT_BITS: u32 = 13;
const FIRST_PASS_BITS: u32 = 2;

/// Eight values at a stride of 1 in, eight sums scaled by 2^13 out.
fn inverse_transform(v: [i32; 8]) -> [i32; 8] {
    let mul = |a: i32, b: i32| a.wrapping_mul(b);
    let sum = |a: i32, b: i32| a.wrapping_add(b);
    let difference = |a: i32, b: i32| a.wrapping_sub(b);

    let z1 = mul(sum(v[2], v[6]), 4433);
    let even2 = difference(z1, mul(v[6], 15137));
    let even3 = sum(z1, mul(v[2], 6270));
    let even0 = sum(v[0], v[4]).wrapping_shl(CONSTANT_BITS);
    let even1 = difference(v[0], v[4]).wrapping_shl(CONSTANT_BITS);
    let even = [sum(even0, even3), sum(even1, even2), difference(even1, even2), difference(even0, even3)];

    let z5 = mul(sum(sum(v[7], v[3]), sum(v[5], v[1])), 9633);
    let z1 = mul(sum(v[7], v[1]), -7373);
    let z2 = mul(sum(v[5], v[3]), -20995);
    let z3 = sum(mul(sum(v[7], v[3]), -16069), z5);
    let z4 = sum(mul(sum(v[5], v[1]), -3196), z5);
    let odd = [
        sum(mul(v[1], 12299), sum(z1, z4)),
        sum(mul(v[3], 25172), sum(z2, z3)),
        sum(mul(v[5], 16819), sum(z2, z4)),
        sum(mul(v[7], 2446), sum(z1, z3)),
    ];
    let mut out = [0; 8];
    for i in 0..4 {
        out[i] = sum(even[i], odd[i]);
        out[7 - i] = difference(even[i], odd[i]);
    }
    out
}

fn descale(value: i32, bits: u32) -> i32 {
    value.wrapping_add(1 << (bits - 1)) >> bits
}

/// Writes the block's 8 × 8 samples at the start of `out`, whose rows are `stride` apart.
fn inverse_block(coefficients: &[i16], quantization: &[u16; 64], out: &mut [u8], stride: usize) {
    let mut columns = [0i32; 64];
    let rows_used = coefficients[8..].iter().any(|&c| c != 0);
    for x in 0..8 {
        let at = |y: usize| i32::from(coefficients[8 * y + x]).wrapping_mul(i32::from(quantization[8 * y + x]));
        if rows_used {
            let sums = inverse_transform(std::array::from_fn(at));
            for (y, &value) in sums.iter().enumerate() {
                columns[8 * y + x] = descale(value, CONSTANT_BITS - FIRST_PASS_BITS);
            }
        } else {
            let value = at(0).wrapping_shl(FIRST_PASS_BITS);
            (0..8).for_each(|y| columns[8 * y + x] = value);
        }
    }
    for (row, out) in columns.chunks_exact(8).zip(out.chunks_mut(stride)) {
        let sums = inverse_transform(std::array::from_fn(|x| row[x]));
        for (sample, &value) in out[..8].iter_mut().zip(&sums) {
            *sample = descale(value, CONSTANT_BITS + FIRST_PASS_BITS + 3).wrapping_add(128).clamp(0, 255) as u8;
        }
    }
}

/// How often a component's samples repeat in each direction.
#[derive(Clone, Copy)]
struct Ratio {
    horizontal: usize,
    vertical: usize,
}

fn ratio(frame: &Frame, component: usize) -> Option<Ratio> {
    let component = &frame.components[component];
    let whole = frame.max_horizontal % component.horizontal == 0 && frame.max_vertical % component.vertical == 0;
    whole.then(|| Ratio {
        horizontal: frame.max_horizontal / component.horizontal,
        vertical: frame.max_vertical / component.vertical,
    })
}

pub fn check_sampling(frame: &Frame) -> Result<(), Failure> {
    match (0..frame.components.len()).all(|i| ratio(frame, i).is_some()) {
        true => Ok(()),
        false => Err(Failure::Unsupported("a JPEG with a fractional chroma sampling".to_string())),
    }
}

struct Component {
    samples: Vec<u8>,
    stride: usize,
    width: usize,
    height: usize,
    ratio: Ratio,
    /// Scratch: a row at three or four times its values.
    sums: Vec<u16>,
}

impl Component {
    fn new(frame: &Frame, index: usize, plane: Plane) -> Result<Self, Failure> {
        let quantization = plane.quantization.ok_or_else(|| malformed("a component is missing"))?;
        let ratio = ratio(frame, index).ok_or_else(|| malformed("a fractional sampling"))?;
        let stride = plane.blocks_across * 8;
        let mut samples = vec![0; stride * plane.blocks_down * 8];
        for (i, coefficients) in plane.coefficients.chunks_exact(64).enumerate() {
            let (x, y) = (i % plane.blocks_across, i / plane.blocks_across);
            inverse_block(coefficients, &quantization, &mut samples[y * 8 * stride + x * 8..], stride);
        }
        let (width, height) = frame.size_of(&frame.components[index]);
        Ok(Component { samples, stride, width, height, ratio, sums: vec![0; width] })
    }

    fn row(&self, y: usize) -> &[u8] {
        &self.samples[y * self.stride..y * self.stride + self.width]
    }

    /// Row `y` of the picture. `out` holds at least width × ratio samples.
    fn write_row(&mut self, y: usize, out: &mut [u8]) {
        let source = y / self.ratio.vertical;
        let below = y % 2 == 1;
        let neighbour = if below { (source + 1).min(self.height - 1) } else { source.saturating_sub(1) };
        match (self.ratio.horizontal, self.ratio.vertical) {
            (1, 1) => out[..self.width].copy_from_slice(self.row(source)),
            (1, 2) => {
                let bias = if below { 2 } else { 1 };
                for ((out, &near), &far) in out.iter_mut().zip(self.row(source)).zip(self.row(neighbour)) {
                    *out = ((3 * u16::from(near) + u16::from(far) + bias) >> 2) as u8;
                }
            }
            (2, 1) if self.width > 2 => {
                let mut sums = std::mem::take(&mut self.sums);
                for (sum, &sample) in sums.iter_mut().zip(self.row(source)) {
                    *sum = u16::from(sample);
                }
                widen(&sums, out, 2, 1, 2);
                self.sums = sums;
            }
            (2, 2) if self.width > 2 => {
                let mut sums = std::mem::take(&mut self.sums);
                for ((sum, &near), &far) in sums.iter_mut().zip(self.row(source)).zip(self.row(neighbour)) {
                    *sum = 3 * u16::from(near) + u16::from(far);
                }
                widen(&sums, out, 4, 8, 7);
                self.sums = sums;
            }
            (horizontal, _) => {
                for (out, &sample) in out.chunks_exact_mut(horizontal).zip(self.row(source)) {
                    out.fill(sample);
                }
            }
        }
    }
}

/// Twice as many samples: three parts of the nearer and one of the farther, divided by 2^shift. `left` and `right`
/// are added before, so that rounding errors cancel out between neighbours.
fn widen(sums: &[u16], out: &mut [u8], shift: u32, left: u16, right: u16) {
    let last = sums.len() - 1;
    for (i, &sum) in sums.iter().enumerate() {
        let before = if i == 0 { sum } else { sums[i - 1] };
        let after = if i == last { sum } else { sums[i + 1] };
        out[2 * i] = ((3 * sum + before + left) >> shift) as u8;
        out[2 * i + 1] = ((3 * sum + after + right) >> shift) as u8;
    }
}

/// Colours of 16-bit fixed point: y + 1.402 cr and so on.
fn to_rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    const HALF: i32 = 1 << 15;
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let red = y + ((91881 * cr + HALF) >> 16);
    let green = y + ((-22554 * cb - 46802 * cr + HALF) >> 16);
    let blue = y + ((116130 * cb + HALF) >> 16);
    [red, green, blue].map(|value| value.clamp(0, 255) as u8)
}

/// [height, width, components]; CMYK with 0 for no ink. Files hold it inverted, as Adobe began to.
pub fn pixels(frame: &Frame, planes: Vec<Plane>, colours: Colours) -> Result<Vec<u8>, Failure> {
    let (width, height) = (frame.width as usize, frame.height as usize);
    let mut components = Vec::with_capacity(planes.len());
    for (index, plane) in planes.into_iter().enumerate() {
        components.push(Component::new(frame, index, plane)?);
    }
    let row_samples = |c: &Component| c.width * c.ratio.horizontal;
    let mut rows: Vec<Vec<u8>> = components.iter().map(|c| vec![0; row_samples(c).max(width)]).collect();
    let count = components.len();
    let mut data = vec![0; width * height * count];
    for (y, out) in data.chunks_exact_mut(width * count).enumerate() {
        for (component, row) in components.iter_mut().zip(&mut rows) {
            component.write_row(y, row);
        }
        for (x, pixel) in out.chunks_exact_mut(count).enumerate() {
            let sample = |component: usize| rows[component][x];
            match colours {
                Colours::Grey => pixel[0] = sample(0),
                Colours::Rgb => pixel.copy_from_slice(&[sample(0), sample(1), sample(2)]),
                Colours::YCbCr => pixel.copy_from_slice(&to_rgb(sample(0), sample(1), sample(2))),
                Colours::Cmyk => (0..4).for_each(|i| pixel[i] = 255 - sample(i)),
                Colours::Ycck => {
                    pixel[..3].copy_from_slice(&to_rgb(sample(0), sample(1), sample(2)));
                    pixel[3] = 255 - sample(3);
                }
            }
        }
    }
    Ok(data)
}
