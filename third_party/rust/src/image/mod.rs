//! C entry point of the picture decoders.

mod bmp;
mod decode;
mod gif;
mod jpeg;
mod metadata;
mod pixels;
mod png;
mod tiff;
mod webp;

use crate::boundary::{call, slice, Bytes, Text};
use decode::{decode, Failure, Format, Gate};

#[repr(C)]
pub struct Image {
    outcome: u32,
    pixels: Bytes,
    width: u32,
    height: u32,
    stored_width: u32,
    stored_height: u32,
    least_bytes: u64,
    details: Text,
    omissions: Text,
    notes: Text,
}

impl Image {
    fn without_pixels(outcome: u32, width: u32, height: u32, least_bytes: u64, details: String) -> Self {
        Image {
            outcome,
            pixels: Bytes::from(Vec::new()),
            width: 0,
            height: 0,
            stored_width: width,
            stored_height: height,
            least_bytes,
            details: Text::from(details),
            omissions: Text::from(String::new()),
            notes: Text::from(String::new()),
        }
    }
}

const DECODED: u32 = 0;
const REFUSED: u32 = 1;
const UNSUPPORTED: u32 = 2;

#[no_mangle]
unsafe extern "C" fn dovetail_image_decode(
    bytes: *const u8,
    size: usize,
    format: u32,
    max_side: u32,
    max_pixels: u64,
    image: *mut Image,
    error: *mut Text,
) -> bool {
    let body = || {
        let format = match format {
            0 => Format::Jpeg,
            1 => Format::Png,
            2 => Format::WebP,
            3 => Format::Gif,
            4 => Format::Bmp,
            5 => Format::Tiff,
            other => return Err(format!("picture format {other} is not known")),
        };
        let gate = Gate { max_side, max_pixels, file_bytes: size as u64 };
        match decode(unsafe { slice(bytes, size) }, format, &gate) {
            Ok(picture) => Ok(Image {
                outcome: DECODED,
                pixels: Bytes::from(picture.pixels),
                width: picture.width,
                height: picture.height,
                stored_width: picture.stored_width,
                stored_height: picture.stored_height,
                least_bytes: 0,
                details: Text::from(picture.details),
                omissions: Text::from(picture.omissions),
                notes: Text::from(picture.notes),
            }),
            Err(Failure::Refused { width, height, least_bytes }) => {
                Ok(Image::without_pixels(REFUSED, width, height, least_bytes, String::new()))
            }
            Err(Failure::Unsupported(what)) => Ok(Image::without_pixels(UNSUPPORTED, 0, 0, 0, what)),
            Err(Failure::Malformed(message)) => Err(message),
        }
    };
    unsafe { call(image, error, body) }
}
