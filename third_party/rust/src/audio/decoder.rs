//! FLAC, MP3 and Ogg (Vorbis, FLAC) to mono samples, at most a given length of them.

#![forbid(unsafe_code)]

use std::io::Cursor;

use symphonia::core::codecs::audio::{well_known, AudioCodecId, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream, ReadOnlySource};
use symphonia::core::meta::MetadataOptions;

#[derive(Clone, Copy, PartialEq)]
pub enum Container {
    Flac,
    Mp3,
    Ogg,
}

/// The longest recording that is decoded, in samples at the rate it will be resampled to.
pub struct Limit {
    pub sample_rate: u32,
    pub samples: u64,
}

impl Limit {
    /// Largest number of source frames whose resampled length, rounded half up, is within the limit.
    fn frames_at(&self, source_rate: u32) -> u64 {
        let (source, target) = (u128::from(source_rate), u128::from(self.sample_rate));
        let frames = (source * (2 * u128::from(self.samples) + 1) - 1) / (2 * target);
        u64::try_from(frames).unwrap_or(u64::MAX)
    }
}

pub struct Decoded {
    pub samples: Vec<f32>,
    pub sample_rate: u32,
    pub channels: u32,
    /// Frames of the recording: counted, or as the file says when it is over the limit.
    pub frames: u64,
    pub over_limit: bool,
    pub codec: &'static str,
    /// Things the user should know, one a line.
    pub notes: String,
}

fn codec_name(codec: AudioCodecId) -> &'static str {
    match codec {
        well_known::CODEC_ID_FLAC => "FLAC",
        well_known::CODEC_ID_MP3 => "MP3",
        well_known::CODEC_ID_VORBIS => "Vorbis",
        _ => "",
    }
}

fn open(bytes: Vec<u8>, container: Container) -> Result<Box<dyn FormatReader>, String> {
    let extension = match container {
        Container::Flac => "flac",
        Container::Mp3 => "mp3",
        Container::Ogg => "ogg",
    };
    // Without seeking the MP3 reader can't replace a missing frame count by an estimate, at which it would cut.
    let source: Box<dyn MediaSource> = if container == Container::Mp3 {
        Box::new(ReadOnlySource::new(Cursor::new(bytes)))
    } else {
        Box::new(Cursor::new(bytes))
    };
    symphonia::default::get_probe()
        .probe(
            Hint::new().with_extension(extension),
            MediaSourceStream::new(source, Default::default()),
            FormatOptions::default(),
            MetadataOptions::default(),
        )
        .map_err(|error| match (error, container) {
            (Error::Unsupported(_), Container::Flac) => "expected a FLAC stream, found none".to_string(),
            (Error::Unsupported(_), Container::Mp3) => "expected frames of MP3 audio, found none".to_string(),
            (Error::Unsupported(_), Container::Ogg) => "expected an Ogg stream, found none".to_string(),
            (other, _) => describe(other),
        })
}

fn describe(error: Error) -> String {
    match error {
        Error::IoError(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the file ends too early".to_string()
        }
        Error::DecodeError(text) => format!("the file is damaged ({text})"),
        Error::ResetRequired => "the file is several recordings one after the other".to_string(),
        other => other.to_string(),
    }
}

pub fn decode(bytes: &[u8], container: Container, limit: &Limit) -> Result<Decoded, String> {
    let tags = tag_bytes(bytes);
    if container == Container::Mp3 && tags >= bytes.len() {
        return Err(format!(
            "expected frames of MP3 audio besides its tags of {tags} bytes, found none (the file has {} bytes)",
            bytes.len()
        ));
    }
    let mut reader = open(bytes.to_vec(), container)?;
    let track = reader.default_track(TrackType::Audio).ok_or("it has no audio track")?.clone();
    let params = track
        .codec_params
        .as_ref()
        .and_then(|params| params.audio())
        .ok_or("its audio codec is not supported")?;
    let codec = codec_name(params.codec);
    if codec.is_empty() {
        return Err("its audio codec is not supported".to_string());
    }
    // The MP3 trimming is done below, where the declared length is checked against the real one.
    let options = AudioDecoderOptions::default().gapless(container != Container::Mp3).verify(true);
    let mut decoder =
        symphonia::default::get_codecs().make_audio_decoder(params, &options).map_err(describe)?;

    let delay = u64::from(track.delay.unwrap_or(0));
    let padding = u64::from(track.padding.unwrap_or(0));
    let encoder_frames = if container == Container::Mp3 { delay + padding } else { 0 };

    let mut result = Decoded {
        samples: Vec::new(),
        sample_rate: params.sample_rate.unwrap_or(0),
        channels: 0,
        frames: 0,
        over_limit: false,
        codec,
        notes: String::new(),
    };
    if let (Some(frames), rate @ 1..) = (track.num_frames, result.sample_rate) {
        if frames > limit.frames_at(rate) {
            result.channels = params.channels.as_ref().map_or(0, |c| c.count() as u32);
            result.frames = frames;
            result.over_limit = true;
            return Ok(result);
        }
    }

    let mut interleaved: Vec<f32> = Vec::new();
    let mut packet_bytes: usize = 0;
    while let Some(packet) = reader.next_packet().map_err(describe)? {
        if packet.track_id != track.id {
            continue;
        }
        packet_bytes += packet.data.len();
        let at = result.samples.len();
        let buffer = decoder.decode(&packet).map_err(|error| match error {
            Error::DecodeError(text) => {
                let seconds = at as f64 / f64::from(result.sample_rate.max(1));
                format!("the file is damaged at {seconds:.2} s ({text})")
            }
            other => describe(other),
        })?;
        if buffer.frames() == 0 {
            continue;
        }
        let (rate, channels) = (buffer.spec().rate(), buffer.spec().channels().count() as u32);
        if channels == 0 || rate == 0 {
            return Err("it has no channels or no sample rate".to_string());
        }
        if result.channels != 0 && (rate, channels) != (result.sample_rate, result.channels) {
            return Err("its sample rate or number of channels changes on the way".to_string());
        }
        (result.sample_rate, result.channels) = (rate, channels);
        buffer.copy_to_vec_interleaved(&mut interleaved);
        for frame in interleaved.chunks_exact(channels as usize) {
            let sum: f64 = frame.iter().map(|&sample| f64::from(sample)).sum();
            result.samples.push((sum / f64::from(channels)) as f32);
        }
        let frames = result.samples.len() as u64;
        if frames.saturating_sub(encoder_frames) > limit.frames_at(rate) {
            result.frames = track.num_frames.unwrap_or(0).max(frames.saturating_sub(encoder_frames));
            result.over_limit = true;
            result.samples = Vec::new();
            return Ok(result);
        }
    }
    if decoder.finalize().verify_ok == Some(false) {
        return Err("the file is damaged (the MD5 of its samples differs)".to_string());
    }

    if container == Container::Mp3 {
        trim_mp3(&mut result, &track, bytes, packet_bytes)?;
    } else if let Some(declared) = track.num_frames {
        let counted = result.samples.len() as u64;
        if declared != 0 && counted != declared {
            return Err(format!(
                "the file is damaged or cut off ({declared} samples declared, {counted} found)"
            ));
        }
    }
    result.frames = result.samples.len() as u64;
    Ok(result)
}

/// Takes out what the encoder added before and after the recording, when the Xing or LAME header tells.
fn trim_mp3(
    result: &mut Decoded,
    track: &symphonia::core::formats::Track,
    bytes: &[u8],
    packet_bytes: usize,
) -> Result<(), String> {
    const LONGEST_MPEG_FRAME: u64 = 1152;
    let delay = u64::from(track.delay.unwrap_or(0));
    let padding = u64::from(track.padding.unwrap_or(0));
    let counted = result.samples.len() as u64;
    match track.num_frames {
        Some(num_frames) => {
            let declared = num_frames + delay + padding;
            // Some encoders count the header as a frame.
            if counted + LONGEST_MPEG_FRAME < declared {
                return Err(format!(
                    "the file is damaged or cut off ({declared} samples declared, {counted} found)"
                ));
            }
            let end = if counted >= declared { counted - padding.min(counted) } else { counted };
            if counted > declared {
                result.notes = format!("the MP3 header declares {declared} samples, {counted} were found");
            }
            result.samples.truncate(end as usize);
            result.samples.drain(..(delay.min(end) as usize));
        }
        None => {
            let skipped = bytes.len().saturating_sub(packet_bytes + tag_bytes(bytes));
            if skipped > 0 {
                result.notes = format!("{skipped} bytes that are not MP3 audio were skipped");
            }
        }
    }
    Ok(())
}

/// Bytes of an ID3v2 tag in front and an ID3v1 tag at the end.
fn tag_bytes(bytes: &[u8]) -> usize {
    let front = match bytes {
        [b'I', b'D', b'3', _, _, flags, a, b, c, d, ..] => {
            let size = [*a, *b, *c, *d].iter().fold(0, |n, &x| n << 7 | usize::from(x & 0x7F));
            10 + size + if flags & 0x10 != 0 { 10 } else { 0 }
        }
        _ => 0,
    };
    let back = bytes.len().checked_sub(128).filter(|&at| bytes[at..].starts_with(b"TAG")).map_or(0, |_| 128);
    front + back
}
