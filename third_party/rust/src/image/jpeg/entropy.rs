//! Huffman-coded scans to coefficients, sequential and progressive.

#![forbid(unsafe_code)]

use super::headers::{malformed, HuffmanSpec, Scan, Segments, ZIGZAG};
use super::Plane;
use crate::image::decode::Failure;

const FAST_BITS: u32 = 9;

struct HuffmanTable {
    /// Value and length of the code that starts the index; length 0 for longer codes.
    fast: Vec<(u8, u8)>,
    /// For each length: the first code, one more than the last, and where its value is.
    ranges: [(u32, u32, usize); 17],
    values: Vec<u8>,
}

impl HuffmanTable {
    fn new(spec: Option<&HuffmanSpec>) -> Result<Self, Failure> {
        let spec = spec.ok_or_else(|| malformed("a Huffman table is missing"))?;
        let mut fast = vec![(0, 0); 1 << FAST_BITS];
        let mut ranges = [(0, 0, 0); 17];
        let (mut code, mut at) = (0u32, 0usize);
        for length in 1..=16u32 {
            let count = u32::from(spec.counts[length as usize - 1]);
            if code + count > 1 << length {
                return Err(malformed("a Huffman table has too many codes"));
            }
            ranges[length as usize] = (code, code + count, at);
            for i in 0..count {
                if length <= FAST_BITS {
                    let shift = FAST_BITS - length;
                    let start = ((code + i) << shift) as usize;
                    fast[start..start + (1 << shift)].fill((spec.values[at + i as usize], length as u8));
                }
            }
            at += count as usize;
            code = (code + count) << 1;
        }
        Ok(HuffmanTable { fast, ranges, values: spec.values.clone() })
    }
}

struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The next bits at the top, zeros below them.
    buffer: u64,
    available: u32,
    /// A marker or the end of the file has been met at `at`.
    ended: bool,
}

impl<'a> BitReader<'a> {
    fn new(bytes: &'a [u8], at: usize) -> Self {
        BitReader { bytes, at, buffer: 0, available: 0, ended: false }
    }

    fn fill(&mut self) {
        while self.available <= 56 && !self.ended {
            match self.bytes.get(self.at..) {
                Some([0xFF, 0, ..]) => {
                    self.push(0xFF);
                    self.at += 2;
                }
                Some([0xFF, ..]) | Some([]) | None => self.ended = true,
                Some(&[byte, ..]) => {
                    self.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn push(&mut self, byte: u8) {
        self.buffer |= u64::from(byte) << (56 - self.available);
        self.available += 8;
    }

    /// Beyond the last bit there are zeros; `skip` refuses them.
    fn peek(&mut self, count: u32) -> u32 {
        if self.available < count {
            self.fill();
        }
        (self.buffer >> (64 - count)) as u32
    }

    fn skip(&mut self, count: u32) -> Result<(), Failure> {
        if count > self.available {
            return Err(malformed("the coded picture ends too early"));
        }
        self.buffer <<= count;
        self.available -= count;
        Ok(())
    }

    fn bits(&mut self, count: u32) -> Result<u32, Failure> {
        if count == 0 {
            return Ok(0);
        }
        let value = self.peek(count);
        self.skip(count)?;
        Ok(value)
    }

    fn bit(&mut self) -> Result<bool, Failure> {
        self.bits(1).map(|bit| bit == 1)
    }

    /// A number of `size` bits, the lower half of which stands for negative ones.
    fn signed(&mut self, size: u32) -> Result<i32, Failure> {
        let value = self.bits(size)? as i32;
        Ok(if size > 0 && value < 1 << (size - 1) { value - (1 << size) + 1 } else { value })
    }

    fn symbol(&mut self, table: &HuffmanTable) -> Result<u8, Failure> {
        let bits = self.peek(16);
        let (value, length) = table.fast[(bits >> (16 - FAST_BITS)) as usize];
        if length > 0 {
            self.skip(u32::from(length))?;
            return Ok(value);
        }
        for length in FAST_BITS + 1..=16 {
            let code = bits >> (16 - length);
            let (first, end, at) = table.ranges[length as usize];
            if (first..end).contains(&code) {
                self.skip(length)?;
                return Ok(table.values[at + (code - first) as usize]);
            }
        }
        Err(malformed(if self.available < 16 { "the coded picture ends too early" } else { "a code is not in its table" }))
    }

    /// Drops the rest of the byte and reads the restart marker with this number.
    fn restart(&mut self, number: usize) -> Result<(), Failure> {
        self.fill();
        let fill = self.bytes[self.at.min(self.bytes.len())..].iter().take_while(|&&byte| byte == 0xFF).count();
        let marker = self.bytes.get(self.at + fill).copied();
        if !self.ended || self.available >= 8 || fill == 0 || marker != Some(0xD0 + (number % 8) as u8) {
            return Err(malformed("a restart marker is missing"));
        }
        *self = BitReader::new(self.bytes, self.at + fill + 1);
        Ok(())
    }
}

/// How the blocks of a scan are coded, with the state that a restart clears.
struct BlockDecoder<'a> {
    scan: &'a Scan,
    progressive: bool,
    /// For each part of the scan: DC and AC table, where the scan uses one.
    tables: Vec<(Option<HuffmanTable>, Option<HuffmanTable>)>,
    predictions: [i32; 4],
    /// Blocks that end without further coefficients.
    end_run: u32,
}

fn table(table: &Option<HuffmanTable>) -> Result<&HuffmanTable, Failure> {
    table.as_ref().ok_or_else(|| malformed("a Huffman table is missing"))
}

impl BlockDecoder<'_> {
    fn decode(&mut self, reader: &mut BitReader, part: usize, block: &mut [i16]) -> Result<(), Failure> {
        match (self.progressive, self.scan.first, self.scan.high) {
            (false, ..) => {
                block[0] = self.dc(reader, part)? as i16;
                self.ac_sequential(reader, part, block)
            }
            (true, 0, 0) => {
                block[0] = (self.dc(reader, part)? << self.scan.low) as i16;
                Ok(())
            }
            (true, 0, _) => {
                block[0] |= i16::from(reader.bit()?) << self.scan.low;
                Ok(())
            }
            (true, _, 0) => self.ac_first(reader, part, block),
            (true, ..) => self.ac_refine(reader, part, block),
        }
    }

    fn dc(&mut self, reader: &mut BitReader, part: usize) -> Result<i32, Failure> {
        let size = reader.symbol(table(&self.tables[part].0)?)?;
        if size > 15 {
            return Err(malformed("a coefficient is too large"));
        }
        let difference = reader.signed(u32::from(size))?;
        self.predictions[part] = self.predictions[part].wrapping_add(difference);
        Ok(self.predictions[part])
    }

    fn ac_sequential(&self, reader: &mut BitReader, part: usize, block: &mut [i16]) -> Result<(), Failure> {
        let table = table(&self.tables[part].1)?;
        let mut k = 1;
        while k < 64 {
            let symbol = reader.symbol(table)?;
            let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                if run < 15 {
                    break;
                }
                k += 16;
                continue;
            }
            k += run;
            let position = *ZIGZAG.get(k).ok_or_else(|| malformed("a run leaves its block"))?;
            block[position] = reader.signed(size)? as i16;
            k += 1;
        }
        Ok(())
    }

    fn ac_first(&mut self, reader: &mut BitReader, part: usize, block: &mut [i16]) -> Result<(), Failure> {
        if self.end_run > 0 {
            self.end_run -= 1;
            return Ok(());
        }
        let table = table(&self.tables[part].1)?;
        let mut k = self.scan.first;
        while k <= self.scan.last {
            let symbol = reader.symbol(table)?;
            let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
            if size == 0 {
                if run < 15 {
                    self.end_run = (1 << run) + reader.bits(run as u32)? - 1;
                    break;
                }
                k += 16;
                continue;
            }
            k += run;
            if k > self.scan.last {
                return Err(malformed("a run leaves its block"));
            }
            block[ZIGZAG[k]] = (reader.signed(size)? << self.scan.low) as i16;
            k += 1;
        }
        Ok(())
    }

    fn ac_refine(&mut self, reader: &mut BitReader, part: usize, block: &mut [i16]) -> Result<(), Failure> {
        let step = 1i16 << self.scan.low;
        let mut k = self.scan.first;
        if self.end_run == 0 {
            let table = table(&self.tables[part].1)?;
            while k <= self.scan.last {
                let symbol = reader.symbol(table)?;
                let (mut zeros, size) = (symbol >> 4, symbol & 15);
                let value = match size {
                    0 if zeros < 15 => {
                        self.end_run = (1 << zeros) + reader.bits(u32::from(zeros))?;
                        break;
                    }
                    0 => 0,
                    1 => if reader.bit()? { step } else { -step },
                    _ => return Err(malformed("a refinement of more than one bit")),
                };
                // Passes `zeros` coefficients that are still zero; refines the others on the way.
                while k <= self.scan.last {
                    let coefficient = &mut block[ZIGZAG[k]];
                    if *coefficient != 0 {
                        refine(reader, coefficient, step)?;
                    } else if zeros == 0 {
                        *coefficient = value;
                        break;
                    } else {
                        zeros -= 1;
                    }
                    k += 1;
                }
                k += 1;
            }
        }
        if self.end_run > 0 {
            for &position in &ZIGZAG[k..=self.scan.last] {
                if block[position] != 0 {
                    refine(reader, &mut block[position], step)?;
                }
            }
            self.end_run -= 1;
        }
        Ok(())
    }
}

fn refine(reader: &mut BitReader, coefficient: &mut i16, step: i16) -> Result<(), Failure> {
    if reader.bit()? && *coefficient & step == 0 {
        *coefficient = coefficient.wrapping_add(if *coefficient > 0 { step } else { -step });
    }
    Ok(())
}

/// Adds one scan to the coefficients. Returns where its data ends.
pub fn decode_scan(bytes: &[u8], segments: &Segments, scan: &Scan, planes: &mut [Plane]) -> Result<usize, Failure> {
    let frame = segments.frame()?;
    let needs_dc = scan.first == 0 && scan.high == 0;
    let needs_ac = scan.last > 0;
    let tables = scan.parts.iter().map(|part| {
        let dc = needs_dc.then(|| HuffmanTable::new(segments.dc_tables[part.dc_table].as_ref()));
        let ac = needs_ac.then(|| HuffmanTable::new(segments.ac_tables[part.ac_table].as_ref()));
        Ok((dc.transpose()?, ac.transpose()?))
    });
    let mut blocks = BlockDecoder {
        scan,
        progressive: frame.progressive,
        tables: tables.collect::<Result<_, Failure>>()?,
        predictions: [0; 4],
        end_run: 0,
    };
    let mut reader = BitReader::new(bytes, scan.start);
    // A scan of one component has no padding blocks: its units are the blocks themselves.
    let single = match scan.parts.as_slice() {
        [part] => Some(frame.size_of(&frame.components[part.component])),
        _ => None,
    };
    let (across, down) = match single {
        Some((width, height)) => (width.div_ceil(8), height.div_ceil(8)),
        None => (frame.mcus_across(), frame.mcus_down()),
    };
    let interval = segments.restart_interval;
    for unit in 0..across * down {
        if interval > 0 && unit > 0 && unit % interval == 0 {
            reader.restart(unit / interval - 1)?;
            blocks.predictions = [0; 4];
            blocks.end_run = 0;
        }
        let (x, y) = (unit % across, unit / across);
        for (index, part) in scan.parts.iter().enumerate() {
            let component = &frame.components[part.component];
            let (horizontal, vertical) =
                if single.is_some() { (1, 1) } else { (component.horizontal, component.vertical) };
            let plane = &mut planes[part.component];
            for block_y in y * vertical..(y + 1) * vertical {
                for block_x in x * horizontal..(x + 1) * horizontal {
                    let start = (block_y * plane.blocks_across + block_x) * 64;
                    blocks.decode(&mut reader, index, &mut plane.coefficients[start..start + 64])?;
                }
            }
        }
    }
    reader.fill();
    Ok(reader.at)
}
