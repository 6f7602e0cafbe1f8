// The search of a group's scale: the one with the smallest Σ (|w| + mean |w|) (w - q · scale)², where the
// mean is taken over a whole group. Large weights count more, but not alone: measured in docs/quality.md. The
// plain and the AVX2 implementation try the same scales in the same order and add in the order of the values,
// so that they choose the same one.
#pragma once

namespace dovetail::convert {

// Of q - zero point. 3 and 4 bits use the code that MLC leaves out; a negative scale puts it on the side of
// the largest value. 8 bits stay within int8, and need no sign.
constexpr int lowest(int bits) { return 1 - (1 << (bits - 1)); }
constexpr int highest(int bits) { return bits == 8 ? 127 : 1 << (bits - 1); }

// The scales tried first make highest + (i - kScaleOrigin) · step of the largest value, before it is clamped,
// for i below kScales. The steps are binary fractions: a group on a grid whose largest value is the highest
// one or the one below is found exactly.
constexpr int kScales = 16;
constexpr int kScaleOrigin = 8;
constexpr float scale_step(int bits) { return bits == 8 ? 0.5f : 0.25f; }
// Then, so many times, the best scale for the values as the best so far has rounded them.
constexpr int kRefits = 2;

// Groups are searched whose largest magnitude lies in [kSmallestSearched, largest_searched]: their errors are
// normal numbers, and q · scale stays within the model dtype. The others are rounded as MLC does, which also
// marks values that are not finite.
constexpr float kSmallestSearched = 0x1p-30f;
constexpr float largest_searched(bool float16) { return float16 ? 0x1p15f : 0x1p30f; }

}  // namespace dovetail::convert
