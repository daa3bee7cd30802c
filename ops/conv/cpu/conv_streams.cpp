// SPDX-License-Identifier: Apache-2.0
// Images are copied with their padding, one pixel after the other, so that the pixels that one tap reads for successive
// results are successive too: a tile of 16 results and 32 channels is then 16 rows of memory, and the next tap the same
// tile at another position. Reference: conv2d_cpu.cpp.
//
// Where the pixels that a tap reads are `stride` apart (forward), the copy holds each residue of the position apart (a
// phase); where only results of one residue read through a tap (data gradient), each residue is summed apart. So in
// either pass a result phase is, for each of its taps, the stream of a source phase moved by so many pixels. Results
// that fall on the padding between two rows are computed and not stored: w / (w + s - 1) of the work is of use.
//
// Filters are copied once to [outputs / 32][taps][channels / 32] pairs of tiles. A task is some images, or some rows of
// a large one, whose copy stays in the second-level cache; it goes through all filters of its share, 32 at a time, and
// multiplies 32 pixels by 32 filters in four tiles of sums, over all taps and channels.
#include "ops/conv/cpu/conv_streams.h"

#include <algorithm>

#include "core/cpu/amx.h"
#include "core/cpu/parallel.h"
#include "ops/matmul/cpu/amx_copies.h"
#include "ops/scratch.h"

namespace hearth::kernels {
namespace {

namespace amx = cpu::amx;
using std::int64_t;

/// A tap of a result phase along one axis.
struct AxisTap {
  int64_t result_phase, tap, source_phase, offset;
};

/// One axis of the pass. Source position = position in a phase * source_phases + phase - shift.
struct Axis {
  int64_t source = 0, result = 0, taps = 0;
  int64_t source_phases = 1, result_phases = 1;
  int64_t shift = 0;
  int64_t reach = 0;  ///< the largest offset of a tap

  /// Results of a phase.
  int64_t results(int64_t phase) const { return (result - phase + result_phases - 1) / result_phases; }
};

/// The axis, and its taps in the order of result phases.
struct AxisPlan {
  Axis axis;
  AxisTap* taps;
  int64_t count = 0;
};

struct AxisOptions {
  int64_t stride, padding, dilation;
};

AxisPlan plan_axis(Axis axis, const AxisOptions& options, bool backward, cpu::Scratch& scratch) {
  (backward ? axis.result_phases : axis.source_phases) = options.stride;
  AxisPlan plan{axis, scratch.take<AxisTap>(axis.result_phases * axis.taps)};
  int64_t lowest = 0;
  for (int64_t phase = 0; phase < std::min(axis.result_phases, axis.result); ++phase)
    for (int64_t tap = 0; tap < axis.taps; ++tap) {
      const int64_t moved = tap * options.dilation, back = phase + options.padding - moved;
      if (backward && back % options.stride != 0) continue;
      const AxisTap made = backward ? AxisTap{phase, tap, 0, back / options.stride}
                                    : AxisTap{0, tap, moved % options.stride, moved / options.stride};
      lowest = std::min(lowest, made.offset);
      plan.taps[plan.count++] = made;
    }
  plan.axis.shift = backward ? -lowest : options.padding;
  for (int64_t i = 0; i < plan.count; ++i) plan.axis.reach = std::max(plan.axis.reach, plan.taps[i].offset -= lowest);
  return plan;
}

/// One step of a sum: 32 channels of a tap. Where its tiles begin, relative to those of the first result and filter.
struct Step {
  int64_t image, filters;
};

/// What a pass reads and makes.
struct Streams {
  Axis h, w;
  int64_t channels = 0, depth = 0, outputs = 0;  ///< depth: of the channels, those that are not zeros
  StreamImages source;
  const float* bias = nullptr;
  bf16* result = nullptr;
  // How it is cut.
  int64_t images = 0, of_task = 1;  ///< images
  int64_t rows = 0;                 ///< of results of a phase, in one copy
  const bool* is_read = nullptr;    ///< of source phases
  const Step* steps = nullptr;      ///< of all result phases
  const int64_t* ends = nullptr;    ///< of each in `steps`
  const bf16* filters = nullptr;    ///< in tiles

  int64_t pitch() const { return w.results(0) + w.reach; }
  int64_t phase_pixels() const { return (rows + h.reach) * pitch(); }
  int64_t phases() const { return h.source_phases * w.source_phases; }
  /// Tiles of pixels end beyond the last one.
  int64_t copy_values() const { return (phases() * phase_pixels() + 32) * channels; }
  int64_t steps_of_filters() const { return h.taps * w.taps * channels / 32; }
};

/// The taps of both axes as steps; `ends` has a number for each result phase.
void list_steps(const Streams& streams, const AxisPlan& h, const AxisPlan& w, Step* steps, int64_t* ends,
                bool* is_read) {
  std::fill_n(is_read, streams.phases(), false);
  int64_t count = 0;
  for (int64_t a = 0; a < streams.h.result_phases; ++a)
    for (int64_t b = 0; b < streams.w.result_phases; ++b) {
      for (const AxisTap* i = h.taps; i < h.taps + h.count; ++i)
        for (const AxisTap* j = w.taps; j < w.taps + w.count; ++j) {
          if (i->result_phase != a || j->result_phase != b) continue;
          const int64_t phase = i->source_phase * streams.w.source_phases + j->source_phase;
          const int64_t pixel = phase * streams.phase_pixels() + i->offset * streams.pitch() + j->offset;
          const int64_t tap = i->tap * streams.w.taps + j->tap;
          is_read[phase] = true;
          for (int64_t c = 0; c < streams.channels; c += 32)
            steps[count++] = {pixel * streams.channels + c, (tap * streams.channels + c) / 32 * 2 * amx::tile_values};
        }
      ends[a * streams.w.result_phases + b] = count;
    }
}

/// Copies what results of `rows` rows of each phase read, from row `first` of phases on, and zeros for the padding.
void copy_image(const Streams& s, int64_t image, int64_t first, bf16* to) {
  const int64_t pitch = s.pitch(), copied_rows = s.rows + s.h.reach;
  for (int64_t phase = 0; phase < s.phases(); ++phase) {
    if (!s.is_read[phase]) continue;
    bf16* pixel = to + phase * s.phase_pixels() * s.channels;
    for (int64_t i = 0; i < copied_rows; ++i) {
      const int64_t y = (first + i) * s.h.source_phases + phase / s.w.source_phases - s.h.shift;
      for (int64_t j = 0; j < pitch; ++j, pixel += s.channels)
        s.source.copy(image, y, j * s.w.source_phases + phase % s.w.source_phases - s.w.shift, pixel);
    }
  }
  std::fill_n(to + s.phases() * s.phase_pixels() * s.channels, 32 * s.channels, bf16());
}

/// Where the results of 32 pixels of a phase go, from `first` of its stream on; null for those between rows.
struct ResultRows {
  int64_t image, first_row, phase_h, phase_w, output;

  void find(const Streams& s, int64_t first, bf16* (&rows)[32]) const {
    const int64_t pitch = s.pitch(), columns = s.w.results(phase_w);
    const int64_t last = std::min(s.rows, s.h.results(phase_h) - first_row);
    int64_t i = first / pitch, j = first % pitch;
    for (bf16*& row : rows) {
      const int64_t y = (first_row + i) * s.h.result_phases + phase_h, x = j * s.w.result_phases + phase_w;
      row = i < last && j < columns ? s.result + ((image * s.h.result + y) * s.w.result + x) * s.outputs + output
                                    : nullptr;
      if (++j == pitch) ++i, j = 0;
    }
  }
};

/// All results of one copy with 32 filters.
template <class TileUnit>
void sum_image(const Streams& s, const bf16* copy, int64_t image, int64_t first_row, int64_t output) {
  amx::Square<TileUnit> square;
  alignas(64) float sums[1024];
  const bf16* const filters = s.filters + output / 32 * s.steps_of_filters() * 2 * amx::tile_values;
  const int64_t outputs = std::min<int64_t>(32, s.outputs - output);
  int64_t begin = 0;
  for (int64_t phase = 0; phase < s.h.result_phases * s.w.result_phases; begin = s.ends[phase++]) {
    const ResultRows result{image, first_row, phase / s.w.result_phases, phase % s.w.result_phases, output};
    const int64_t rows = std::min(s.rows, s.h.results(result.phase_h) - first_row);
    const int64_t length = rows <= 0 ? 0 : (rows - 1) * s.pitch() + s.w.results(result.phase_w);
    for (int64_t first = 0; first < length; first += 32) {
      square.clear();
      for (const Step* step = s.steps + begin; step < s.steps + s.ends[phase]; ++step) {
        square.load_a(copy + first * s.channels + step->image, s.channels);
        square.load_b(filters + step->filters);
        square.multiply();
      }
      square.store(sums);
      bf16* to[32];
      result.find(s, first, to);
      amx::store_square(sums, s.bias == nullptr ? nullptr : s.bias + output, outputs, to);
    }
  }
}

void sum_all(const Streams& s) {
  const int64_t bands = (s.h.results(0) + s.rows - 1) / s.rows, groups = (s.images + s.of_task - 1) / s.of_task;
  const int64_t blocks = (s.outputs + 31) / 32, wanted = cpu::threads() == 1 ? 1 : 2 * cpu::threads();
  const int64_t shares = std::min(blocks, (wanted + bands * groups - 1) / (bands * groups));
  cpu::parallel_chunks(groups * bands * shares, [&](int64_t task) {
    const int64_t share = task % shares, first_row = task / shares % bands * s.rows;
    const int64_t first = task / shares / bands * s.of_task, count = std::min(s.of_task, s.images - first);
    cpu::Scratch scratch;
    bf16* const copy = scratch.take<bf16>(count * s.copy_values());
    for (int64_t i = 0; i < count; ++i) copy_image(s, first + i, first_row, copy + i * s.copy_values());
    for (int64_t block = share * blocks / shares; block < (share + 1) * blocks / shares; ++block)
      for (int64_t i = 0; i < count; ++i)
        (amx::emulated() ? sum_image<amx::EmulatedTiles> : sum_image<amx::Tiles>)(s, copy + i * s.copy_values(),
                                                                                  first + i, first_row, block * 32);
  });
}

/// copy(first output, tap, first channel, tiles) for each pair of tiles of the filters.
template <class Copy>
void copy_filters(const Streams& s, bf16* to, const Copy& copy) {
  const int64_t taps = s.h.taps * s.w.taps, steps = s.channels / 32;
  cpu::parallel_chunks((s.outputs + 31) / 32 * taps, [&](int64_t task) {
    bf16* tiles = to + task * steps * 2 * amx::tile_values;
    for (int64_t channel = 0; channel < s.channels; channel += 32, tiles += 2 * amx::tile_values)
      copy(task / taps * 32, task % taps, channel, tiles);
  });
}

/// Filters [outputs, taps, depth], of which the tiles have the columns.
template <class W>
void copy_columns(const W* filters, const Streams& s, bf16* to) {
  const int64_t taps = s.h.taps * s.w.taps;
  copy_filters(s, to, [&](int64_t output, int64_t tap, int64_t channel, bf16* tiles) {
    for (int64_t half = 0; half < 2; ++half) {
      const W* rows[16];
      for (int64_t i = 0; i < 16; ++i) {
        const int64_t filter = output + 16 * half + i;
        rows[i] = filter < s.outputs ? filters + (filter * taps + tap) * s.depth + channel : nullptr;
      }
      bf16* const tile = tiles + half * amx::tile_values;
      amx::copy_rows(rows, std::min<int64_t>(32, s.depth - channel), {tile, 1, 0});
      amx::copies().transpose(tile);
    }
  });
}

/// Filters [channels, taps, outputs], of which the tiles have the rows.
template <class W>
void copy_rows(const W* filters, const Streams& s, bf16* to) {
  const int64_t taps = s.h.taps * s.w.taps;
  copy_filters(s, to, [&](int64_t output, int64_t tap, int64_t channel, bf16* tiles) {
    const W* rows[32];
    for (int64_t i = 0; i < 32; ++i) rows[i] = filters + ((channel + i) * taps + tap) * s.outputs + output;
    amx::copy_pairs(rows, std::min<int64_t>(32, s.outputs - output), {tiles, 1, 0});
  });
}

/// Copies of a task near 512 KB: several images, or rows of one.
void cut(Streams& s) {
  constexpr int64_t bytes = 512 << 10;
  const int64_t row_bytes = s.phases() * s.pitch() * s.channels * 2;
  s.rows = std::clamp<int64_t>(bytes / row_bytes - s.h.reach, std::min<int64_t>(8, s.h.results(0)), s.h.results(0));
  if (s.rows < s.h.results(0)) return;
  s.of_task = std::clamp<int64_t>(bytes / (s.copy_values() * 2), 1, s.images);
  const int64_t wanted = cpu::threads() == 1 ? 1 : 2 * cpu::threads();
  while (s.of_task > 1 && (s.images + s.of_task - 1) / s.of_task < wanted) s.of_task = (s.of_task + 1) / 2;
}

/// The streams of a pass without its filters.
Streams plan(const ConvProblem& problem, const Conv2dOperands& o, cpu::Scratch& scratch) {
  const bool backward = problem.pass == Pass::backward_data;
  // The data gradient reads dy as images of which every pixel is stored as it is seen.
  ConvShape stored = problem.shape;
  if (backward) stored.h = stored.p, stored.w = stored.q, stored.c = stored.k;
  const StreamImages source(stored, (backward ? o.y : o.x).data<bf16>());
  const ConvShape shape = backward ? problem.shape : source.shape();
  const AxisPlan h = plan_axis({stored.h, backward ? shape.h : shape.p, shape.r},
                               {shape.stride_h, shape.pad_h, shape.dilation_h}, backward, scratch);
  const AxisPlan w = plan_axis({source.shape().w, backward ? shape.w : shape.q, shape.s},
                               {shape.stride_w, shape.pad_w, shape.dilation_w}, backward, scratch);
  Streams s{h.axis, w.axis, source.channels(), source.depth(), backward ? shape.c : shape.k, source};
  s.result = (backward ? o.x : o.y).data<bf16>();
  s.bias = !backward && o.b.defined() ? o.b.data<float>() : nullptr;
  s.images = shape.n;
  cut(s);
  auto* const steps = scratch.take<Step>(h.count * w.count * s.channels / 32);
  auto* const ends = scratch.take<int64_t>(s.h.result_phases * s.w.result_phases);
  auto* const is_read = scratch.take<bool>(s.phases());
  list_steps(s, h, w, steps, ends, is_read);
  s.steps = steps, s.ends = ends, s.is_read = is_read;
  return s;
}

template <class W>
void convolve(const ConvProblem& problem, const Conv2dOperands& o) {
  cpu::Scratch scratch;
  Streams s = plan(problem, o, scratch);
  auto* const tiles = scratch.take<bf16>((s.outputs + 31) / 32 * s.steps_of_filters() * 2 * amx::tile_values);
  const W* const filters = o.w.data<W>();
  problem.pass == Pass::forward ? copy_columns(filters, s, tiles) : copy_rows(filters, s, tiles);
  s.filters = tiles;
  sum_all(s);
}

}  // namespace

void convolve_on_tiles(const ConvProblem& problem, const Conv2dOperands& operands) {
  (problem.weights == DType::f32 ? convolve<float> : convolve<bf16>)(problem, operands);
}

}  // namespace hearth::kernels
