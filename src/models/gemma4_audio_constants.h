// Parameters of the audio adapter that no checkpoint holds: they follow from the architecture.
#pragma once

#include <span>

#include "models/gemma4_config.h"

namespace dovetail::models {

// [frame_length, 2 * bins]: a windowed real DFT, cosine columns first, then sine. The periodic Hann window is
// folded in, so that frames · matrix is the spectrum of the windowed frames.
void fill_dft_matrix(std::span<float> out);
// [bins, mel bands]: triangles on the HTK mel scale from 0 to 8000 Hz, not normalised.
void fill_mel_filters(std::span<float> out);
// [window + 1, hidden]: sines, then cosines, of the distances window … 0.
void fill_relative_positions(int32_t window, int32_t hidden, std::span<float> out);

}  // namespace dovetail::models
