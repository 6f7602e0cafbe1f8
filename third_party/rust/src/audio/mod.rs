//! C entry points of the audio decoder.

mod decoder;

use crate::boundary::{call, slice, Samples, Text};
use decoder::{decode, Container, Limit};

#[repr(C)]
pub struct Audio {
    samples: Samples,
    sample_rate: u32,
    channels: u32,
    frames: u64,
    over_limit: bool,
    codec: Text,
    notes: Text,
}

#[no_mangle]
unsafe extern "C" fn dovetail_audio_decode(
    bytes: *const u8,
    size: usize,
    container: u32,
    limit_sample_rate: u32,
    limit_samples: u64,
    audio: *mut Audio,
    error: *mut Text,
) -> bool {
    let body = || {
        let container = match container {
            0 => Container::Flac,
            1 => Container::Mp3,
            2 => Container::Ogg,
            other => return Err(format!("container {other} is not known")),
        };
        if limit_sample_rate == 0 {
            return Err("the sample rate of the limit is 0".to_string());
        }
        let limit = Limit { sample_rate: limit_sample_rate, samples: limit_samples };
        let decoded = decode(unsafe { slice(bytes, size) }, container, &limit)?;
        Ok(Audio {
            samples: Samples::from(decoded.samples),
            sample_rate: decoded.sample_rate,
            channels: decoded.channels,
            frames: decoded.frames,
            over_limit: decoded.over_limit,
            codec: Text::from(decoded.codec.to_string()),
            notes: Text::from(decoded.notes),
        })
    };
    unsafe { call(audio, error, body) }
}
