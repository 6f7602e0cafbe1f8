//! The segments of a JPEG file up to each scan.

#![forbid(unsafe_code)]

use crate::image::decode::Failure;

pub const ZIGZAG: [usize; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55,
    62, 63,
];

pub struct Component {
    pub id: u8,
    pub horizontal: usize,
    pub vertical: usize,
    quantization_table: usize,
}

pub struct Frame {
    pub width: u32,
    pub height: u32,
    pub progressive: bool,
    pub components: Vec<Component>,
    pub max_horizontal: usize,
    pub max_vertical: usize,
}

impl Frame {
    pub fn mcus_across(&self) -> usize {
        (self.width as usize).div_ceil(8 * self.max_horizontal)
    }

    pub fn mcus_down(&self) -> usize {
        (self.height as usize).div_ceil(8 * self.max_vertical)
    }

    /// Width and height of a component in samples, without padding.
    pub fn size_of(&self, component: &Component) -> (usize, usize) {
        let width = (self.width as usize * component.horizontal).div_ceil(self.max_horizontal);
        let height = (self.height as usize * component.vertical).div_ceil(self.max_vertical);
        (width, height)
    }
}

/// The bytes of a Huffman table: how many codes of each length, and their values.
#[derive(Clone)]
pub struct HuffmanSpec {
    pub counts: [u8; 16],
    pub values: Vec<u8>,
}

pub struct ScanPart {
    pub component: usize,
    pub dc_table: usize,
    pub ac_table: usize,
}

/// One scan; the entropy-coded data begins at `start`.
pub struct Scan {
    pub parts: Vec<ScanPart>,
    pub first: usize,
    pub last: usize,
    pub high: u8,
    pub low: u8,
    pub start: usize,
}

#[derive(Clone, Copy)]
pub enum Colours {
    Grey,
    YCbCr,
    Rgb,
    Cmyk,
    Ycck,
}

pub fn malformed(message: impl Into<String>) -> Failure {
    Failure::Malformed(message.into())
}

pub struct Segments<'a> {
    bytes: &'a [u8],
    at: usize,
    frame: Option<Frame>,
    quantization: [Option<[u16; 64]>; 4],
    pub dc_tables: [Option<HuffmanSpec>; 4],
    pub ac_tables: [Option<HuffmanSpec>; 4],
    pub restart_interval: usize,
    jfif: bool,
    adobe_transform: Option<u8>,
    pub exif: Option<&'a [u8]>,
    /// Number and content of each part of the colour profile.
    icc_parts: Vec<(u8, &'a [u8])>,
}

impl<'a> Segments<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Segments {
            bytes,
            at: 2,
            frame: None,
            quantization: [None; 4],
            dc_tables: [const { None }; 4],
            ac_tables: [const { None }; 4],
            restart_interval: 0,
            jfif: false,
            adobe_transform: None,
            exif: None,
            icc_parts: Vec::new(),
        }
    }

    pub fn frame(&self) -> Result<&Frame, Failure> {
        self.frame.as_ref().ok_or_else(|| malformed("there is no frame header"))
    }

    pub fn quantization(&self, component: usize) -> Result<[u16; 64], Failure> {
        let table = self.frame()?.components[component].quantization_table;
        self.quantization[table].ok_or_else(|| malformed("a quantization table is missing"))
    }

    pub fn resume_at(&mut self, at: usize) {
        self.at = at;
    }

    /// Reads up to the next scan; None at the end of the picture.
    pub fn next_scan(&mut self) -> Result<Option<Scan>, Failure> {
        loop {
            let marker = self.next_marker()?;
            match marker {
                0xD9 => return Ok(None),
                0x01 | 0xD0..=0xD8 => continue,
                _ => {}
            }
            let body = self.segment()?;
            match marker {
                0xDA => return self.read_scan(body).map(Some),
                0xC4 => self.read_huffman_tables(body)?,
                0xC0..=0xC2 => self.read_frame(marker, body)?,
                0xC3 => return Err(unsupported("a lossless JPEG")),
                0xC5..=0xC7 => return Err(unsupported("a hierarchical JPEG")),
                0xC9..=0xCB | 0xCD..=0xCF => return Err(unsupported("a JPEG with arithmetic coding")),
                0xDB => self.read_quantization_tables(body)?,
                0xDD => match *body {
                    [high, low] => self.restart_interval = usize::from(u16::from_be_bytes([high, low])),
                    _ => return Err(malformed("a restart interval of a wrong length")),
                },
                0xE0 if body.starts_with(b"JFIF\0") => self.jfif = true,
                0xE1 if body.starts_with(b"Exif\0\0") && self.exif.is_none() => self.exif = Some(body),
                0xE2 if body.starts_with(b"ICC_PROFILE\0") && body.len() > 14 => {
                    self.icc_parts.push((body[12], &body[14..]));
                }
                0xEE if body.starts_with(b"Adobe") && body.len() >= 12 => self.adobe_transform = Some(body[11]),
                _ => {}
            }
        }
    }

    /// Skips to the next marker, as libjpeg does over bytes that belong to nothing.
    fn next_marker(&mut self) -> Result<u8, Failure> {
        let ends_early = || malformed("the file ends too early");
        loop {
            let rest = self.bytes.get(self.at..).ok_or_else(ends_early)?;
            let skipped = rest.iter().position(|&byte| byte == 0xFF).ok_or_else(ends_early)?;
            let fill = rest[skipped..].iter().position(|&byte| byte != 0xFF).ok_or_else(ends_early)?;
            let marker = rest[skipped + fill];
            self.at += skipped + fill + 1;
            if marker != 0 {
                return Ok(marker);
            }
        }
    }

    fn segment(&mut self) -> Result<&'a [u8], Failure> {
        let ends_early = || malformed("the file ends too early");
        let size = match self.bytes.get(self.at..self.at + 2) {
            Some(&[high, low]) => usize::from(u16::from_be_bytes([high, low])),
            _ => return Err(ends_early()),
        };
        if size < 2 {
            return Err(malformed("a segment of less than 2 bytes"));
        }
        let body = self.bytes.get(self.at + 2..self.at + size).ok_or_else(ends_early)?;
        self.at += size;
        Ok(body)
    }

    fn read_frame(&mut self, marker: u8, body: &[u8]) -> Result<(), Failure> {
        if self.frame.is_some() {
            return Err(malformed("there are two frame headers"));
        }
        let &[precision, height_high, height_low, width_high, width_low, count, ref rest @ ..] = body else {
            return Err(malformed("the frame header is too short"));
        };
        if precision != 8 {
            return Err(unsupported(&format!("a JPEG with {precision} bits a sample")));
        }
        if !matches!(count, 1 | 3 | 4) {
            return Err(unsupported(&format!("a JPEG with {count} components")));
        }
        if rest.len() != 3 * usize::from(count) {
            return Err(malformed("the frame header has a wrong length"));
        }
        let components: Vec<Component> = rest
            .chunks_exact(3)
            .map(|c| Component {
                id: c[0],
                horizontal: usize::from(c[1] >> 4),
                vertical: usize::from(c[1] & 15),
                quantization_table: usize::from(c[2]),
            })
            .collect();
        let valid = |c: &Component| {
            (1..=4).contains(&c.horizontal) && (1..=4).contains(&c.vertical) && c.quantization_table < 4
        };
        if !components.iter().all(valid) {
            return Err(malformed("a component's sampling or table is out of range"));
        }
        let height = u32::from(u16::from_be_bytes([height_high, height_low]));
        if height == 0 {
            return Err(unsupported("a JPEG that tells its height at the end"));
        }
        self.frame = Some(Frame {
            width: u32::from(u16::from_be_bytes([width_high, width_low])),
            height,
            progressive: marker == 0xC2,
            max_horizontal: components.iter().map(|c| c.horizontal).max().unwrap_or(1),
            max_vertical: components.iter().map(|c| c.vertical).max().unwrap_or(1),
            components,
        });
        Ok(())
    }

    fn read_quantization_tables(&mut self, mut body: &[u8]) -> Result<(), Failure> {
        while let Some((&head, rest)) = body.split_first() {
            let (index, wide) = (usize::from(head & 15), head >> 4);
            let size = if wide == 0 { 64 } else { 128 };
            if index > 3 || wide > 1 || rest.len() < size {
                return Err(malformed("a quantization table is damaged"));
            }
            let mut table = [0; 64];
            for (i, &position) in ZIGZAG.iter().enumerate() {
                table[position] = if wide == 0 {
                    u16::from(rest[i])
                } else {
                    u16::from_be_bytes([rest[2 * i], rest[2 * i + 1]])
                };
            }
            self.quantization[index] = Some(table);
            body = &rest[size..];
        }
        Ok(())
    }

    fn read_huffman_tables(&mut self, mut body: &[u8]) -> Result<(), Failure> {
        let damaged = || malformed("a Huffman table is damaged");
        while let Some((&head, rest)) = body.split_first() {
            let counts: [u8; 16] = rest.get(..16).and_then(|c| c.try_into().ok()).ok_or_else(damaged)?;
            let total: usize = counts.iter().map(|&count| usize::from(count)).sum();
            let values = rest.get(16..16 + total).ok_or_else(damaged)?;
            let index = usize::from(head & 15);
            if index > 3 || head >> 4 > 1 || total > 256 {
                return Err(damaged());
            }
            let tables = if head >> 4 == 0 { &mut self.dc_tables } else { &mut self.ac_tables };
            tables[index] = Some(HuffmanSpec { counts, values: values.to_vec() });
            body = &rest[16 + total..];
        }
        Ok(())
    }

    fn read_scan(&self, body: &[u8]) -> Result<Scan, Failure> {
        let damaged = || malformed("a scan header is damaged");
        let frame = self.frame()?;
        let count = usize::from(*body.first().ok_or_else(damaged)?);
        if !(1..=4).contains(&count) || body.len() != 4 + 2 * count {
            return Err(damaged());
        }
        let mut parts: Vec<ScanPart> = Vec::with_capacity(count);
        for pair in body[1..1 + 2 * count].chunks_exact(2) {
            let component = frame.components.iter().position(|c| c.id == pair[0]).ok_or_else(damaged)?;
            let (dc_table, ac_table) = (usize::from(pair[1] >> 4), usize::from(pair[1] & 15));
            if dc_table > 3 || ac_table > 3 || parts.iter().any(|part| part.component == component) {
                return Err(damaged());
            }
            parts.push(ScanPart { component, dc_table, ac_table });
        }
        let [first, last, approximation] = [body[1 + 2 * count], body[2 + 2 * count], body[3 + 2 * count]];
        let (high, low) = (approximation >> 4, approximation & 15);
        let scan = if frame.progressive {
            let valid = if first == 0 { last == 0 } else { first <= last && last <= 63 && count == 1 };
            if !valid || low > 13 || (high != 0 && high != low + 1) {
                return Err(damaged());
            }
            Scan { parts, first: usize::from(first), last: usize::from(last), high, low, start: self.at }
        } else {
            Scan { parts, first: 0, last: 63, high: 0, low: 0, start: self.at }
        };
        Ok(scan)
    }

    /// What the components mean, by the rules of libjpeg.
    pub fn colours(&self) -> Result<Colours, Failure> {
        let components = &self.frame()?.components;
        Ok(match (components.len(), self.adobe_transform) {
            (1, _) => Colours::Grey,
            (3, _) if self.jfif => Colours::YCbCr,
            (3, Some(0)) => Colours::Rgb,
            (3, None) if components.iter().map(|c| c.id).eq(*b"RGB") => Colours::Rgb,
            (3, _) => Colours::YCbCr,
            (_, None | Some(0)) => Colours::Cmyk,
            _ => Colours::Ycck,
        })
    }

    pub fn icc_profile(&self) -> Option<Vec<u8>> {
        let mut parts = self.icc_parts.clone();
        parts.sort_by_key(|&(number, _)| number);
        (!parts.is_empty()).then(|| parts.iter().flat_map(|&(_, part)| part.iter().copied()).collect())
    }
}

fn unsupported(what: &str) -> Failure {
    Failure::Unsupported(what.to_string())
}
