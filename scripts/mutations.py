# SPDX-License-Identifier: Apache-2.0
"""The faults that scripts/mutate plants. One for each kernel that is wrong by a thousandth; one for each barrier that
something depends on; indices that are off by one; orders between streams that are not made. Barriers that guard the next
turn of a loop over tiles or rows which no launch of a test enters twice are left out."""

from dataclasses import dataclass, field

KINDS = {
    "value": "a result off by a thousandth",
    "barrier": "a barrier or a wait of a kernel left out",
    "index": "an index or a bound off by one",
    "host": "the host touches what lies on the device",
    "fence": "an order between streams, or between host and stream, not made",
}


@dataclass(frozen=True)
class Fault:
    name: str
    kind: str
    file: str
    original: str  # a whole statement, with its ';', or an expression
    faulty: str  # may be empty for a statement
    program: str
    tests: str  # as for --gtest_filter
    within: str = ""  # surroundings that occur once in the file, where the original alone does not
    environment: dict = field(default_factory=dict, hash=False)


FAULTS = []


def group(file, program, tests):
    """Adders for the faults of a file; `tests` unless a fault names others."""

    def add(kind, name, original, faulty, tests=tests, within="", **environment):
        FAULTS.append(Fault(name, kind, file, original, faulty, f"hearth_test_{program}", tests, within, environment))

    def value(name, original, faulty, *args, **named):
        add("value", name, original, faulty, *args, **named)

    def index(name, original, faulty, *args, **named):
        # Each tensor is a block of its own, so that its bounds are exact.
        add("index", name, original, faulty, *args, **{"HEARTH_MEMORY": "system", **named})

    def barrier(name, before, after="", *args, original="__syncthreads();", **named):
        add("barrier", name, original, "", *args, within=before + original + after, **named)

    def fence(name, original, faulty="", *args, **named):
        add("fence", name, original, faulty, *args, **named)

    return value, index, barrier, fence


# ---- core ----
value, index, _, _ = group("core/convert.cu", "core", "CudaTensor.*")
value("fill", "convert_element<T>(value)", "convert_element<T>(value * 1.001)")
value("convert-elements", "convert_element<To>(source[i])",
      "convert_element<To>(convert_element<double>(source[i]) * 1.001)")
value("convert-packs", "convert_element<To>(from.at[k])",
      "convert_element<To>(convert_element<double>(from.at[k]) * 1.001)")
value("copy-strided", "destination[to] = source[from];", "destination[to] = planted_scale(source[from]);")
index("copy-strided-axis", "from += index * nest.from[axis];", "from += (index > 0 ? index - 1 : 0) * nest.from[axis];")
index("convert-rest", "n - 4 * packs", "n > 4 * packs ? n - 4 * packs - 1 : 0")

value, index, barrier, _ = group("core/cuda/kernel.h", "ops", "Op.LayerNorm/cuda_f32")
barrier("block-reduce-written", "parts[warp] = value;\n  ")
barrier("block-reduce-read", "value = warp_reduce<Join>(value);\n  ", "\n  return value;")
index("block-reduce-warps", "lane < static_cast<int>(blockDim.x) / warp_size",
      "lane <= static_cast<int>(blockDim.x) / warp_size")
value("warp-reduce-lost-step", "step > 0", "step > 1", within="int step = warp_size / 2; step > 0;")

value, index, _, _ = group("core/cuda/elementwise.h", "ops", "CudaElementwise.MisalignedArraysGiveTheSameBits")
index("map-rest-begins", "packs * count + global_thread()", "packs * count + global_thread() + 1")
index("map-rest-ends", "i < n", "i <= n", within="i = packs * count + global_thread(); i < n;")
index("walk-rows-units", "unit < units", "unit <= units", "Op.Add/cuda_f32")

value, _, _, _ = group("autograd/accumulate.cu", "ops", "Op.ATensorUsedTwiceGetsBothGradients/cuda_f32")
value("add-into", "sum + term", "(sum + term) * A(1.001)")

# ---- order between streams ----
_, _, _, fence = group("core/cuda/feed.cpp", "core", "CudaOrder.*")
fence("feed-sent-not-waited-for", "HEARTH_TRY(cudaStreamWaitEvent(computing.raw(), set.sent, 0));")
fence("feed-sent-not-recorded", "HEARTH_TRY(cudaEventRecord(set.sent, copying_));")
fence("feed-consumed-not-recorded", "HEARTH_TRY(cudaEventRecord(set.consumed, computing.raw()));")
fence("feed-consumed-not-waited-for", "HEARTH_TRY(cudaEventSynchronize(set.consumed));")
fence("feed-memory-not-waited-for", "HEARTH_TRY(cudaEventRecord(set.consumed, stream_of(device).raw()));")
fence("feed-gone-before-its-copies", "cudaStreamSynchronize(copying_);")
_, index, _, fence = group("core/cuda/staging.cpp", "core", "CudaOrder.*")
fence("staging-half-not-recorded", "HEARTH_TRY(cudaEventRecord(passed_[1 - entered], stream.raw()));")
fence("staging-half-not-waited-for", "HEARTH_TRY(cudaEventSynchronize(passed_[entered]));")
_, _, _, fence = group("core/cuda/memory.cpp", "core", "CudaOrder.*")
fence("region-freed-in-use", "cudaStreamSynchronize(stream_);")
_, _, _, fence = group("core/cuda/graph.cpp", "core", "CudaOrder.*")
fence("recorded-outside-the-arena", "arena.run(work);", "work();")
fence("random-step-frozen", "is_recording(stream.device()) ? state_of(stream.device()).random_step : nullptr",
      "static_cast<const std::uint64_t*>(nullptr)", "CudaOrder.*")
fence("random-step-not-sent", "stage(stream, state_of(stream.device()).random_step, &step, sizeof(step));")
_, _, _, fence = group("core/cuda/runtime.cpp", "core", "CudaFeedOrder.*")
fence("wait-does-not-wait", "HEARTH_TRY(cudaStreamSynchronize(raw_));")
_, _, _, fence = group("core/cuda/transfer.cpp", "core", "CudaTensor.*")
fence("copy-out-without-wait", "stream.wait();")

# ---- ops: elementwise ----
value, index, barrier, _ = group("ops/epilogue/epilogue.cu", "ops",
                                 "CudaElementwise.BiasesAndTheirGradientsAgreeWithTheCpu")
value("bias", "wide.at[k] += widen(bias[unit * size + k]);",
      "wide.at[k] += widen(bias[unit * size + k]) * acc_t<T>(1.001);")
value("activate-grad-with-sums", "d.at[k] *= F::slope(of.at[k]);", "d.at[k] *= F::slope(of.at[k]) * A(1.001);")
value("bias-grad-pieces", "parts[k][place] = sums[k];", "parts[k][place] = sums[k] * A(1.001);")
value("bias-grad-join", "convert_element<D>(sum)", "convert_element<D>(sum * A(1.001))")
index("bias-grad-rows", "row < end", "row <= end")
index("bias-grad-last-row", "row < join_rows", "row < join_rows - 1")
barrier("bias-grad-sums-written", "parts[k][place] = sums[k];\n  ")
barrier("bias-grad-halved", "half * blockDim.x];\n    }\n    ")
barrier("bias-grad-join-written", "parts[threadIdx.y][threadIdx.x] = sum;\n  ")

value, index, _, _ = group("ops/shape/concat.cu", "ops", "CudaElementwise.RunsOfEveryWidthAreCopied")
value("concat", "to[row * to_pitch + i] = from[row * from_pitch + i];",
      "to[row * to_pitch + i] = planted_scale(from[row * from_pitch + i]);")
index("concat-place", "to[row * to_pitch + i] = from[row * from_pitch + i];",
      "to[row * to_pitch + i] = from[row * from_pitch + i + 1];")

FAULTS.append(Fault("slice-grad-filled-by-the-host", "host", "ops/shape/view.cpp", "dx.fill_(0);",
                    "if (dx.size() > 0) __builtin_memset(dx.bytes(), 0, dx.byte_size());", "hearth_test_ops",
                    "Op.Slice/cuda_f32", environment={"HEARTH_EMULATE_PROTECT": "1"}))

value, index, _, _ = group("ops/pointwise/value_slope.h", "ops", "Op.Pointwise_*/cuda_f32")
value("pointwise", "F::value(x)", "F::value(x) * A(1.001)")
value("pointwise-grad", "dy * F::slope(kept)", "dy * F::slope(kept) * A(1.001)")

value, index, _, _ = group("ops/pointwise/dropout.cu", "ops", "CudaElementwise.DropoutChoosesAsTheCpuDoes")
value("dropout", "widen(x[i]) * scale", "widen(x[i]) * scale * acc_t<T>(1.001)")
index("dropout-place", "first + 16 * j", "first + 16 * j + 1")
index("dropout-end", "i < n", "i <= n", within="if (i >= 0 && i < n)")
index("dropout-begin", "i >= 0", "i >= -1", "DropoutOnDevices.ABatchInPartsDrawsWhatItDrawsInOnePiece")
value, _, _, _ = group("ops/pointwise/dropout.cuh", "ops", "CudaElementwise.DropoutChoosesAsTheCpuDoes")
value("dropout-part", "skipped * 16 + block)", "block)", "DropoutOnDevices.ABatchInPartsDrawsWhatItDrawsInOnePiece")
value("drop-path-sample", "number / 64 * 16", "number / 64 * 15",
      "CudaElementwise.DropPathChoosesAsTheCpuDoesInOneLaunch")
value, index, _, _ = group("ops/pointwise/drop_path.cu", "ops", "Op.AddDropPath/cuda_f32")
value("drop-path", "added.at[k] * scale", "added.at[k] * scale * acc_t<T>(1.001)", "Op.DropPath/cuda_f32")
value("drop-path-residual", "std::fma(added.at[k], scale, sum.at[k])",
      "std::fma(added.at[k], scale, sum.at[k] * acc_t<T>(1.001))")
value("drop-path-rounds-twice", "std::fma(added.at[k], scale, sum.at[k])", "added.at[k] * scale + sum.at[k]",
      "DropPathOnDevices.ADeviceRoundsASumOnce")
index("drop-path-place", "(sample * units + unit) * count", "(sample * units + unit) * count + 1")

value, index, _, _ = group("ops/pointwise/binary.cu", "ops", "Op.Mul/cuda_f32")
value("binary", "evaluate<step>(of_a[k], of_b[k], slope)",
      "static_cast<acc_t<T>>(evaluate<step>(of_a[k], of_b[k], slope) * 1.001)")
index("binary-broadcast", "rest % walk.extents[axis]", "(rest + 1) % walk.extents[axis]")

value, index, barrier, _ = group("ops/image/normalize_images.cu", "ops", "Op.NormalizeImages/cuda_f32")
value("normalize-images", "value = own.value(p, values, pixel, channel);",
      "value = own.value(p, values, pixel, channel) * 1.001f;")
value("normalize-images-mixed", "__fmul_rn(share, value)", "__fmul_rn(share * 1.001f, value)")
index("normalize-images-box", "row - box[0] < box[2]", "row - box[0] <= box[2]")
index("normalize-images-mixed-box", "p.share[1 + side]", "p.share[side]")
index("normalize-images-room", "channel < p.c", "channel <= p.c")
barrier("normalize-images-values", "copied[i] = p.values[i];\n    ")

value, index, _, _ = group("ops/conv/channels.cu", "ops", "CudaTensorCores.ChannelsAreCopiedToTheBit")
value("copy-channels-words", "store_wide(y + row * known, wide, true);",
      "wide.at[0] *= acc_t<Y>(1.001); store_wide(y + row * known, wide, true);")
index("copy-channels-words-end", "c < copied", "c <= copied", within="wide.at[c] = c < copied ?")
value("copy-channels", "narrow<Y>(c < copied ? widen(from[c]) : acc_t<Y>(0))",
      "narrow<Y>(c < copied ? widen(from[c]) * acc_t<Y>(1.001) : acc_t<Y>(0))")
index("copy-channels-pitch", "x + row * pitch_x", "x + row * (pitch_x > 1 ? pitch_x - 1 : 1)")

# ---- ops: reductions, rows and columns ----
value, index, barrier, _ = group("ops/softmax/softmax.cu", "ops", "Op.Softmax/cuda_f32")
value("softmax-short", "value[u][k] * inverse", "value[u][k] * inverse * P(1.001)")
value("log-softmax-short", "value[u][k] - log_sum", "(value[u][k] - log_sum) * P(1.001)", "Op.LogSoftmax/cuda_f32")
value("softmax-long", "softmax_value(logarithm, value[k], state.most, state.sum, log_sum)",
      "softmax_value(logarithm, value[k], state.most, state.sum, log_sum) * P(1.001)")
value("softmax-grad-short", "softmax_slope(logarithm, result[u][k], slope[u][k], sum)",
      "softmax_slope(logarithm, result[u][k], slope[u][k], sum) * P(1.001)")
value("softmax-grad-long", "softmax_slope(logarithm, result[k], slope[k], sum)",
      "softmax_slope(logarithm, result[k], slope[k], sum) * P(1.001)")
index("softmax-last-column", "inside ? cols : 0", "inside ? cols - 1 : 0",
      within="const int held = inside ? cols : 0;\n    P value")
value, _, _, _ = group("ops/softmax/online_sum.cuh", "ops", "Op.Softmax/cuda_f32")
value("online-sum", "sum * std::exp(most - from) + part", "sum * std::exp(most - from) + part * P(1.001)",
      "Op.LogSoftmax/cuda_f32:Op.CrossEntropy/cuda_f32")

# ---- ops: attention ----
value, index, barrier, _ = group("ops/attention/attention.cu", "ops", "Op.Attention/cuda_f32")
value("attention", "P(1) / whole", "P(1.001) / whole")
value("attention-lse", "static_cast<P>(std::log(whole))", "static_cast<P>(std::log(whole)) * P(1.001)")
value("attention-grad-rows", "widen(left[d]) * widen(right[d])", "widen(left[d]) * widen(right[d]) * acc_t<T>(1.001)")
value("attention-grad-q", "factor[i] = p.scale;", "factor[i] = p.scale * P(1.001);")
value("attention-grad-kv", "one[i] = P(1);", "one[i] = P(1.001);")
value("attention-grad-bias", "sum[i][j] += slope[i][j];", "sum[i][j] += slope[i][j] * P(1.001);",
      "Op.AttentionBias/cuda_f32")
value("attention-grad-bias-parts", "sum += from[part * n + i];", "sum += from[part * n + i] * P(1.001);",
      "Op.AttentionBias/cuda_f32")
index("attention-last-channel", "row < end && channel < width", "row < end && channel <= width")
index("attention-last-query", "row < end && channel < width", "row <= end && channel < width")
index("attention-first-query", "(first - p.query_offset) / Size::tile * Size::tile",
      "((first - p.query_offset) / Size::tile + 1) * Size::tile", "Op.AttentionOfLongSequences/cuda_f32")
barrier("attention-rows-brought", "P(1), v);\n    ", "\n    P score[")
barrier("attention-weights-put", "", "\n    add_weighted<Size, columns>(weights, Size::weight_pitch, 1, v, sum);")
barrier("attention-rows-used", "add_weighted<Size, columns>(weights, Size::weight_pitch, 1, v, sum);\n    ")
barrier("attention-grad-q-slopes-put", "", "\n    add_weighted<Size, columns>(slopes, Size::weight_pitch, 1, k, sum);")
barrier("attention-grad-q-rows-used", "add_weighted<Size, columns>(slopes, Size::weight_pitch, 1, k, sum);\n    ")
barrier("attention-grad-kv-slopes-put", "put_weights<Size>(weight, weights);\n    put_weights<Size>(slope, slopes);\n    ")
barrier("attention-grad-kv-rows-used", "add_weighted<Size, columns>(slopes, 1, Size::weight_pitch, q, sum_k);\n    ")
value, index, _, _ = group("ops/attention/problem.cuh", "ops", "Op.Attention/cuda_f32")
index("attention-own-key", "key <= p.query_offset + query", "key < p.query_offset + query")
index("attention-padding", "key < keys", "key <= keys", "Op.AttentionOfPaddedKeys/cuda_f32",
      within="query < p.queries && key < keys")
index("attention-drops", "(i == 0 ? words[0] : words[1])", "(i == 0 ? words[1] : words[0])",
      "Op.AttentionDropout/cuda_f32")
value("attention-kept", "1.0 / (1.0 - a.dropout)", "1.001 / (1.0 - a.dropout)", "Op.AttentionDropout/cuda_f32")
value, index, barrier, _ = group("ops/attention/attention_mma.cu", "ops", "CudaAttention.RoundingFavoursNoSide")
value("attention-mma", "1.0f / whole", "1.001f / whole")
value("attention-mma-grad-q", "p.scale", "p.scale * 1.001f", within="factor[2] = {p.scale, p")
value("attention-mma-grad-k", "p.scale", "p.scale * 1.001f", within="scale[2] = {p.scale, p")
value("attention-mma-grad-v", "1.0f", "1.001f", within="one[2] = {1.0f, 1")
index("attention-mma-drops", "odd * 8", "0", "Op.AttentionDropout/cuda_f16",
      within="first_key + odd * 8 + own_column(e), shared")
index("attention-mma-last-query", "row >= end || d >= own_width", "row > end || d >= own_width",
      "Op.AttentionOfManyTiles/cuda_f16")
index("attention-mma-last-channel", "row >= end || d >= own_width", "row >= end || d > own_width",
      "Op.AttentionOfManyTiles/cuda_f16")
index("attention-mma-grad-rows", "query + i % passing", "query + (i + 1) % passing")
barrier("attention-mma-copies-seen", "", "\n    start(key + passing, 1 - stage);\n    float weight[passing / 8][4];")
_, index, _, _ = group("ops/attention/attention_library.cu", "reference_dnn", "Op.LibraryAttentionOfPaddedKeys/cuda_f16")
index("attention-library-count", "length < keys ? length : keys", "length + 1 < keys ? length + 1 : keys")
index("attention-library-no-key", "head.keys > 0", "head.keys >= 0")
index("attention-library-padding", "token >= head.keys", "token > head.keys")
value, index, _, _ = group("ops/attention/rotary.cu", "ops", "Op.Rotary/cuda_f32")
value("rotary", "narrow<T>(second * cosine + first * sine)", "narrow<T>((second * cosine + first * sine) * P(1.001))")
index("rotary-position", "row % a.rows", "row % a.rows + 1")
index("rotary-values", "a.rotated", "a.rotated + 1", "Op.RotaryOfQkv/cuda_f32",
      within="std::int64_t h = a.rotated; x != y")

value, index, _, _ = group("ops/norm/rms_norm.cu", "ops", "Op.RmsNorm/cuda_f32")
value("rms-norm", "value[k] * rstd * scale[k]", "value[k] * rstd * scale[k] * P(1.001)")
value("rms-norm-grad", "slope[k] - normal[k] * b", "slope[k] - normal[k] * b * P(1.001)")
value("rms-norm-gamma", "(widen(x[row * cols + c]) * rstds[row])", "(widen(x[row * cols + c]) * rstds[row]) * acc_t<T>(1.001)")
value("rms-norm-gamma-shares", "static_cast<P>(sum)", "static_cast<P>(sum * 1.001)")
index("rms-norm-runs", "row < begin + rows_each && row < rows", "row < begin + rows_each + 1 && row < rows")
value, index, _, _ = group("ops/pointwise/swiglu.cu", "ops", "Op.Swiglu/cuda_f32")
value("swiglu", "a[k] * sigmoid(a[k]) * b[k]", "a[k] * sigmoid(a[k]) * b[k] * P(1.001)")
value("swiglu-grad", "d[k] * a[k] * open", "d[k] * a[k] * open * P(1.001)")
index("swiglu-halves", "load_unit(from + cols, b)", "load_unit(from + cols - 1, b)")

_, index, _, _ = group("ops/row_split.cuh", "ops", "Op.LayerNorm/cuda_f32")
index("lane-group-last-step", "step > 0", "step > 1")
index("column-end", "column < cols", "column <= cols", within="(index) * width; column < cols;")
index("row-beyond-the-last", "row < rows ? row : rows - 1", "row < rows ? row : rows")

_, index, barrier, _ = group("ops/column_tile.cuh", "ops", "Op.BatchNormTraining/cuda_f32:Op.Sum/cuda_f32")
barrier("sum-down-written", "mine[k] = value[k];\n  ")
barrier("sum-down-halved", "mine[half * width + k];\n    }\n    ")
barrier("sum-down-read", "value[k] = total[k];\n  ")
index("sum-down-last-half", "half >= across", "half > across")
index("tile-last-row", "end < cut.rows ? end : cut.rows", "(end < cut.rows ? end : cut.rows) - 1")

value, index, barrier, _ = group("ops/reduce/reduce.cu", "ops", "Op.Sum/cuda_f32")
value("sum-rows", "store_scaled(y + piece, sum, scale)", "store_scaled(y + piece, sum * 1.001, scale)")
value("sum-columns", "store_scaled(to + k, sum[k], scale)", "store_scaled(to + k, sum[k] * 1.001, scale)")
value("sum-short-columns", "store_scaled(y + column, sum, scale)", "store_scaled(y + column, sum * 1.001, scale)")
value("extreme", "from[best.place]", "planted_scale(from[best.place])", "Op.Max/cuda_f32")
value("extreme-grad", "dy[row]", "planted_scale(dy[row])", "Op.Max/cuda_f32")
index("sum-rows-piece", "rest < cut.segment_cols ? rest : cut.segment_cols",
      "(rest < cut.segment_cols ? rest : cut.segment_cols) - 1")
index("sum-columns-end", "at >= place.end_row", "at > place.end_row")
index("extreme-end", "c < end", "c < end - 1", "Op.Max/cuda_f32")
barrier("extreme-written", "spots[warp] = best.place;\n      }\n      ", "", "Op.Max/cuda_f32")

value, index, barrier, _ = group("ops/norm/layer_norm.cuh", "ops", "Op.LayerNorm/cuda_f32")
value("layer-norm-variance", "squares / n - rest * rest", "squares / n * P(1.001) - rest * rest")
value("layer-norm-held", "(value[u][k] - found.mean) * found.rstd * scale[k] + shift[k]",
      "((value[u][k] - found.mean) * found.rstd * scale[k] + shift[k]) * P(1.001)")
value("layer-norm-long", "(in.again(row, cols, c) - found.mean) * found.rstd * gamma[c] + beta[c]",
      "((in.again(row, cols, c) - found.mean) * found.rstd * gamma[c] + beta[c]) * P(1.001)")
value("layer-norm-grad-held", "rstd * (slope[u][k] - a - normal[u][k] * b)",
      "rstd * (slope[u][k] - a - normal[u][k] * b) * P(1.001)")
value("layer-norm-grad-gamma", "d_gamma[u][k] += d * centred;", "d_gamma[u][k] += d * centred * P(1.001);")
value("layer-norm-grad-beta", "d_beta[u][k] += d;", "d_beta[u][k] += d * P(1.001);")
value("layer-norm-grad-long", "rstd * (g - a - (x.element(row, cols, c) - mean) * rstd * b)",
      "rstd * (g - a - (x.element(row, cols, c) - mean) * rstd * b) * P(1.001)")
value("layer-norm-parameter-shares", "d_gamma += d * ((x.element(row, cols, c) - means[row]) * rstds[row]);",
      "d_gamma += d * ((x.element(row, cols, c) - means[row]) * rstds[row]) * P(1.001);")
value("layer-norm-add-shares", "static_cast<P>(sum)", "static_cast<P>(sum * 1.001)")
index("layer-norm-second-warp", "turn == 0", "turn <= 1")
index("layer-norm-last-share", "share < shares", "share < shares - 1")
index("layer-norm-last-row-of-a-share", "row < begin + rows_each", "row < begin + rows_each - 1",
      "Op.LayerNormManyLongRows/cuda_f32")
barrier("layer-norm-merge-turn", "merged[c + k] + value[u][k];\n      });\n    }\n    ")
barrier("layer-norm-merge-read", "total[c] = merged[c];\n  ")
barrier("layer-norm-shares-written", "sums[warp][lane] = sum;\n  ")

value, index, barrier, _ = group("ops/norm/add_layer_norm.cu", "ops", "Op.AddLayerNorm/cuda_f32")
value("add-layer-norm-sum", "std::fma(added[k], factor, value[k])",
      "std::fma(added[k], factor, value[k]) * P(1.001)")
value("add-layer-norm-drop", "value[k] * scale", "value[k] * scale * P(1.001)", within="!= 0 ? value[k] * scale : P(0)")
value("add-layer-norm-keep", "value[k] *= scale;", "value[k] *= scale * P(1.001);")
value("add-layer-norm-grad", "narrow<T>(value[k] + gradient[k])", "narrow<T>(value[k] + gradient[k] * P(1.001))")
value("add-layer-norm-long-sum", "widen(f[at]) * scale", "widen(f[at]) * scale * P(1.001)")
value("add-layer-norm-long-grad", "widen(others[at]) + value", "widen(others[at]) + value * P(1.001)")
value("add-layer-norm-long-drop", "widen(total) * factor * scale", "widen(total) * factor * scale * P(1.001)")
index("add-layer-norm-long-draw", "draws.keeps(at)", "draws.keeps(at + 1)",
      "AddLayerNormOnDevices.DrawsWhatDropoutDraws",
      within="draws.keeps(at);\n    sum[at]")
value("add-layer-norm-grad-sample", "value[k] * factor", "value[k] * factor * P(1.001)",
      "Op.AddLayerNormOfSamplesThatStay/cuda_f32", within="? value[k] * factor : P(0)")
index("add-layer-norm-which-sample", "draws.keeps(at / size)", "draws.keeps(at / (size + 1))",
      "Op.AddLayerNormOfSamplesThatStay/cuda_f32")
index("add-layer-norm-draw", "row[c + 16 * j] = words[j] >= draws.threshold ? 1 : 0;",
      "row[c + 16 * j == 0 ? 0 : c + 16 * j - 1] = words[j] >= draws.threshold ? 1 : 0;")
barrier("add-layer-norm-drawn", "  ", "\n  return row;", original="wait_for_row(group);")

value, index, _, _ = group("ops/norm/merge_layer_norm.cu", "ops", "Op.MergeLayerNorm/cuda_f32")
value("merge-layer-norm-none", "value[k] = P(0);", "value[k] = P(0.001);")
value("merge-layer-norm-element", "widen(x[spot.at])", "widen(x[spot.at]) * P(1.001)")
value("merge-layer-norm-store", "dx[spot.at] = narrow<T>(value);", "dx[spot.at] = narrow<T>(value * P(1.001));")
index("merge-layer-norm-beyond", "spot.exists", "true", within="if (spot.exists) store_unit")
index("merge-layer-norm-load-beyond", "spot.exists", "true", within="if (spot.exists) {")
value, index, _, _ = group("ops/norm/merged_rows.h", "ops", "MergeLayerNormOnDevices.HasTheBitsOfItsParts")
index("merge-layer-norm-at-the-right", "c >= 2 * channels", "c > 2 * channels")
index("merge-layer-norm-below", "upper + 1 < height", "upper + 1 <= height")
index("merge-layer-norm-across", "(width + 1) / 2", "width / 2")

value, index, barrier, _ = group("ops/norm/batch_norm.cu", "ops", "Op.BatchNormTraining/cuda_f32")
value("batch-norm-mean", "mean[k] /= rows;", "mean[k] /= rows * 1.001;")
value("batch-norm-squares", "squares[k] += move * (n * move - 2 * sum[k]);",
      "squares[k] += move * (n * move - 2 * sum[k]); squares[k] *= 1.001;")
value("batch-norm-evaluate", "static_cast<double>(to.running_var[c])", "static_cast<double>(to.running_var[c]) * 1.001",
      "Op.BatchNormEvaluation/cuda_f32")
value("batch-norm-apply", "(value[slot][k] - of.mean[k]) * of.scale[k] + of.shift[k]",
      "((value[slot][k] - of.mean[k]) * of.scale[k] + of.shift[k]) * P(1.001)")
value("batch-norm-grad-sum", "part[k] += g;", "part[k] += g * P(1.001);")
value("batch-norm-grad-product", "part_product[k] += g * d;", "part_product[k] += g * d * P(1.001);")
value("batch-norm-grad-gamma", "static_cast<P>(product * rstd[c])", "static_cast<P>(product * rstd[c] * 1.001)")
value("batch-norm-grad-beta", "static_cast<P>(sum)", "static_cast<P>(sum * 1.001)")
value("batch-norm-correction-of-mean", "static_cast<P>(sum / values - b * rest)",
      "static_cast<P>(sum / values * 1.001 - b * rest)")
value("batch-norm-correction-of-variance", "static_cast<P>(b);", "static_cast<P>(b * 1.001);")
value("batch-norm-grad-apply", "of.scale[k] * (slope[slot][k] - a[k] - d * b[k])",
      "of.scale[k] * (slope[slot][k] - a[k] - d * b[k]) * P(1.001)")
value("batch-norm-grad-residual",
      "if (d_residual != nullptr) store_eight<packed>(d_residual + row * lanes + of.first, of.count, slope[slot]);",
      "for (P& g : slope[slot]) g *= P(1.001); "
      "if (d_residual != nullptr) store_eight<packed>(d_residual + row * lanes + of.first, of.count, slope[slot]);",
      "Op.BatchNormReluGradient/cuda_f32")
index("batch-norm-mask", "mask[row * units + index]", "mask[row * units + (index > 0 ? index - 1 : 0)]",
      "Op.BatchNormReluGradient/cuda_f32")
index("batch-norm-last-partial", "i < fold * cut.segments", "i < fold * cut.segments - 1")
index("batch-norm-rows-ahead", "row + (ahead - 1) * place.down < place.end_row",
      "row + (ahead - 1) * place.down <= place.end_row")

value, _, _, _ = group("ops/norm/batch_norm.cuh", "ops", "Op.BatchNormRunningStatistics/cuda_f32")
value("batch-norm-rstd", "1.0 / std::sqrt(variance + to.eps)", "1.001 / std::sqrt(variance + to.eps)",
      "Op.BatchNormTraining/cuda_f32")
value("batch-norm-running-mean", "blend(to.running_mean, mean);", "blend(to.running_mean, mean * 1.001);")
value("batch-norm-running-variance", "blend(to.running_var, variance * (values / (values - 1.0)));",
      "blend(to.running_var, variance * 1.001 * (values / (values - 1.0)));")

value, index, barrier, _ = group("ops/attention/window_attention.cu", "ops", "Op.WindowAttention/cuda_f32")
value("window-attention", "P(1)", "P(1.001)", within="inverse = P(1) / weigh")
value("window-attention-join", "sums.folded[share * all + c]", "sums.folded[share * all + c] * P(1.001)",
      "Op.WindowAttentionOfManyWindows/cuda_f32")
index("window-attention-join-warps", "warp < join_warps", "warp < join_warps - 1",
      "Op.WindowAttentionOfManyWindows/cuda_f32")
barrier("window-attention-join-parts", "parts[warp_id()][lane_id()] = sum;\n  ", "",
        "Op.WindowAttentionOfManyWindows/cuda_f32")
barrier("window-attention-folds", "", "\n  fold_share(p.grid, sums")
value("window-attention-padding", "dk", "dk * P(1.001)", within="+ d] += dk;")
value("window-attention-grad-q", "p.scale", "p.scale * P(1.001)", within="tokens, pitch, d) * p.scale)")
value("window-attention-grad-v", "narrow<T>(dv)", "narrow<T>(dv * P(1.001))")
value("window-attention-draws", "kept(p, window, i, j)", "P(1)", "Op.WindowAttentionDropout/cuda_f32",
      within="inside ? kept(p, window, i, j) : P(0)")
barrier("window-attention-grad-used", "", "\n    const Window window(p, at, blockIdx.x",
        "Op.WindowAttentionOfManyWindows/cuda_f32")
barrier("window-attention-brought", "load_part(p, window, 2, P(1), v);\n  ")
barrier("window-attention-grad-brought", "load_slopes(p, window, dy, rows + 3 * tokens * pitch);\n    ")
barrier("window-attention-grad-shifts", "bias, dqkv);\n    ")
value, index, _, _ = group("ops/attention/window_problem.cuh", "ops", "Op.WindowAttention/cuda_f32")
value("window-attention-fold", "sums.folded[block * sums.columns + c] = sum;",
      "sums.folded[block * sums.columns + c] = sum * P(1.001);")
index("window-attention-fold-rows", "side + below", "side + below - 1")
index("window-attention-last-share", "(share + 1) * size < all", "(share + 1) * size <= all + 1",
      "Op.WindowAttentionOfManyWindows/cuda_f32")
index("window-attention-next-row", "++across < grid.across", "++across <= grid.across",
      "Op.WindowAttentionOfManyWindows/cuda_f16")
index("window-attention-seam", "y >= side - grid.shift_y", "y > side - grid.shift_y")
value("window-attention-fold-padding", "sums.padding[(block * tokens + t) * 2 * width + c - sums.entries]",
      "sums.padding[(block * tokens + t) * 2 * width + c - sums.entries] * P(1.001)")
value, index, barrier, _ = group("ops/attention/window_attention_mma.cu", "ops",
                                 "CudaWindowAttention.RoundingFavoursNoSide")
value("window-attention-mma", "1.0f / reduce_row<Sum>(sum)", "1.001f / reduce_row<Sum>(sum)")
value("window-attention-mma-grad-q", "p.scale", "p.scale * 1.002f", within="p.scale, g.dqkv, step)")
value("window-attention-mma-grad-k", "p.scale", "p.scale * 1.002f", within="p.scale, g.dqkv + p.channels")
value("window-attention-mma-grad-v", "1.0f", "1.002f", within="1.0f, g.dqkv + 2")
value("window-attention-mma-padding", "factor", "factor * 1.001f", within="sum[j][2 * half + e] * factor;")
index("window-attention-mma-last-key", "key > count", "key > count + 1")
barrier("window-attention-mma-grad-put", "", "\n  multiply_turned<width, tokens>(g.values, q, sum);")
barrier("window-attention-mma-grad-taken", "", "\n  kept.apply(0, weight);\n  put_rows")
barrier("window-attention-mma-grad-put-again", "", "\n  multiply_turned<width, tokens>(g.values, dy, sum);")
value("window-attention-mma-mask", "weight[j][e] += ", "weight[j][e] -= ", "Op.WindowAttention/cuda_f16",
      within="weight[j][e] += static_cast<float>(window_mask)")
barrier("window-attention-mma-folds", "slopes.finish();\n  ")
value, index, barrier, _ = group("ops/attention/window_mma.cuh", "ops", "CudaWindowAttention.RoundingFavoursNoSide")
value("window-attention-mma-sums", "sum.at[e] += slope[e];", "sum.at[e] += slope[e] * 1.001f;")
index("window-attention-mma-next", "next.advance(p.grid);", "place.advance(p.grid);")
index("window-attention-mma-drops", "odd * 8", "0", "Op.WindowAttentionDropout/cuda_f16", within="+ odd * 8 +")
barrier("window-attention-mma-brought", "cp_async_wait<Memory::buffers - 1>();\n    ")
barrier("window-attention-mma-used", "% Memory::buffers * Memory::buffer);\n    ")
value("window-attention-mma-kept", "!= 0 ? factor_ : 0.0f", "== 0 ? factor_ : 0.0f",
      "Op.WindowAttentionDropout/cuda_f16")
index("window-attention-mma-kept-turns", "4 * (first + j) + e", "4 * j + e", "Op.WindowAttentionDropout/cuda_f16")
# ---- ops: products ----
value, index, barrier, _ = group("ops/matmul/tile.cuh", "ops", "Op.MatmulTiles/cuda_f32")
value("sum-parts", "sum += parts[part * elements + i];", "sum += parts[part * elements + i] * acc_t<T>(1.001);")
value("product-bias", "cuda::widen(static_cast<const T*>(bias)[column])",
      "cuda::widen(static_cast<const T*>(bias)[column]) * A(1.001)", "Op.LinearPortable/cuda_f32")
index("tile-depth", "k + i < end", "k + i <= end")
index("tile-columns", "c < columns", "c <= columns")
barrier("tile-written", "b.put(b_step);\n    ")
barrier("tile-read", "x[i] * y[j];\n      }\n    }\n    ")

value, _, _, _ = group("ops/matmul/product.cu", "ops", "Op.MatmulTiles/cuda_f32")
value("product", "store((matrix * p.m + r) * p.n + c, c, value);",
      "store((matrix * p.m + r) * p.n + c, c, value * A(1.001));")

value, _, _, _ = group("ops/matmul/activated_store.cuh", "ops", "CudaTensorCores.ActivatedProductsAreRoundedOnce")
value("activated-sum", "store.total(at, column, sum)", "store.total(at, column, sum) * Sum(1.001)",
      "Op.LinearPortable/cuda_f32")
value("activated-kept", "pre[at] = cuda::narrow<T>(total);", "pre[at] = cuda::narrow<T>(total * Sum(1.001));",
      "Op.LinearPortable/cuda_f32")
value("activated-pair", "store.total(at, column, first)", "store.total(at, column, first) * Sum(1.01)")
value("activated-neighbour", "store.total(at + 1, column + 1, second)",
      "store.total(at + 1, column + 1, second) * Sum(1.01)")

value, index, _, _ = group("ops/matmul/product_mma.cu", "ops", "CudaTensorCores.ProductsAreRoundedOnce")
value("product-mma", "store.pair((matrix * p.m + r) * p.n + c, c, first, second, both);",
      "store.pair((matrix * p.m + r) * p.n + c, c, first * 1.001f, second * 1.001f, both);")

value, index, barrier, _ = group("ops/matmul/mma_tile.cuh", "ops", "CudaTensorCores.ProductsAreRoundedOnce")
index("mma-last-column", "c + 1 < columns", "c + 1 <= columns")
index("mma-stage", "stage == stages - 1 ? 0 : stage + 1", "stage == stages - 1 ? 1 : stage + 1")
barrier("mma-copies-waited-for", "", "", original="cuda::cp_async_wait<stages - 2>();")
barrier("mma-copies-seen", "cuda::cp_async_wait<stages - 2>();\n    ")

value, _, _, _ = group("ops/conv/conv2d.cu", "ops", "Op.Conv2dPortable/cuda_f32")
store = "store(origin + r * row_step + c, first_filter + c, value{});"
for each in ("forward", "backward_data", "backward_weights"):
    value(f"conv2d-{each.replace('_', '-')}", store.format(""),
          store.format(f" * (pass == Pass::{each} ? A(1.001) : A(1))"))

value, _, _, _ = group("ops/conv/conv2d_mma.cu", "ops", "CudaTensorCores.ConvolutionsAreRoundedOnce")
store = "store.pair(origin + r * row_step + c, first_filter + c, first{0}, second{0}, both);"
for each in ("forward", "backward_data", "backward_weights"):
    value(f"conv2d-mma-{each.replace('_', '-')}", store.format(""),
          store.format(f" * (pass == Pass::{each} ? 1.001f : 1.0f)"))

value, index, barrier, _ = group("ops/conv/moments.cuh", "ops", "Op.ConvMoments/cuda_f32")
value("conv-moments-mean", "static_cast<double>(centre) + left / n", "(static_cast<double>(centre) + left / n) * 1.001")
value("conv-moments-squares", "squares += d * d;", "squares += d * d * A(1.001);")
index("conv-moments-last-row", "row < part.rows", "row < part.rows - 1")
index("conv-moments-last-thread", "of < Layout::threads", "of < Layout::threads - 1")
index("conv-moments-columns-beyond", "first + column >= part.columns", "first + column > part.columns")
barrier("conv-moments-tile-written", "put(first);\n    ")
barrier("conv-moments-sums-written", "shared[mine] = value;\n  ")
barrier("conv-moments-sums-read", "sum += shared[of];\n  ", "\n  return sum;")

value, _, _, _ = group("ops/conv/moments.cu", "ops", "CudaConvMoments.ComeFromALibrarysSums")
value("conv-moments-of-sums", "squares - sum * sum / rows", "(squares - sum * sum / rows) * 1.001")

_, index, _, _ = group("ops/conv/operands.cuh", "ops", "Op.Conv2dPortable/cuda_f32")
index("conv2d-below-the-image", "y >= g.h", "y > g.h", within="image == nullptr || y < 0 || y >= g.h")
index("conv2d-window-beyond", "p >= g.p", "p > g.p")
index("conv2d-patch-beyond", "y >= g.h", "y > g.h", within="channel[i] < 0 || y < 0 || y >= g.h")

# ---- ops: pool, index, losses ----
value, index, barrier, _ = group("ops/pool/pool.cu", "ops", "Op.MaxPool2d/cuda_f32")
value("max-pool", "narrow<T>(best[i])", "narrow<T>(best[i] * acc_t<T>(1.001))")
value("max-pool-grad", "chosen.at[i] == tap ? widen(gradient.at[i]) : acc_t<T>(0)",
      "chosen.at[i] == tap ? widen(gradient.at[i]) * acc_t<T>(1.001) : acc_t<T>(0)")
value("avg-pool", "sum[i] *= scale;", "sum[i] *= scale * A(1.001);", "Op.AvgPool2d/cuda_f32")
value("avg-pool-grad", "sum[i] += widen(gradient.at[i]) * scale;",
      "sum[i] += widen(gradient.at[i]) * scale * A(1.001);", "Op.AvgPool2d/cuda_f32")
value("global-avg-pool", "narrow<T>(sum / static_cast<A>(pixels))", "narrow<T>(sum / static_cast<A>(pixels) * A(1.001))",
      "Op.GlobalAvgPool/cuda_f32")
value("global-avg-pool-grad", "narrow<T>(widen(dy[from]) / static_cast<A>(pixels))",
      "narrow<T>(widen(dy[from]) / static_cast<A>(pixels) * A(1.001))", "Op.GlobalAvgPool/cuda_f32")
index("pool-first-tap", "start < 0 ? -start : 0", "start < 0 ? -start - 1 : 0", "Op.AvgPool2d/cuda_f32")
index("pool-last-window", "last < count ? last : count", "(last < count ? last : count) - 1")
index("max-pool-tap", "tap[i] = r * s.kernel_w + t;", "tap[i] = r * s.kernel_w + t + 1;")
barrier("global-avg-pool-written", "lines[line][lane] = sum;\n    ", "", "Op.GlobalAvgPool/cuda_f32")

value, index, _, _ = group("ops/index/index.cu", "ops", "Op.Embedding/cuda_f32:Op.IndexSelect/cuda_f32")
value("take-rows", "y[at] = x[row * inner + column];", "y[at] = planted_scale(x[row * inner + column]);")
value("take-along", "y[at] = x[(slab * rows + checked(ids[at], rows, faults)) * inner + at % inner];",
      "y[at] = planted_scale(x[(slab * rows + checked(ids[at], rows, faults)) * inner + at % inner]);",
      "Op.Gather/cuda_f32")
value("index-grad", "static_cast<acc_t<T>>(sum)", "static_cast<acc_t<T>>(sum * 1.001)")
index("index-grad-first-place", "keys[middle] < key", "keys[middle] <= key")
index("index-grad-last-place", "i < count && keys[i] == row", "i < count - 1 && keys[i] == row")
index("index-keys-of-rows", "keys[i] = ids[i] >= 0 && ids[i] < rows ? ids[i] : rows;",
      "keys[i] = ids[i] >= 0 && ids[i] < rows - 1 ? ids[i] : rows;")
index("index-keys-of-elements", "(slab * rows + id) * inner + at % inner", "(slab * rows + id) * inner + (at + 1) % inner",
      "Op.Gather/cuda_f32")

value, index, barrier, _ = group("ops/index/order.cu", "ops",
                                 "Op.EmbeddingManyPlaces/cuda_f32:Op.GatherManyPlaces/cuda_f32")
value("sort-numbers", "places[i] = i;", "places[i] = i - (i % 1000 == 999 ? 1 : 0);")
value("sort-places", "places_out[to] = places[i];", "places_out[to] = places[i] > 0 && to % 1000 == 999 ? 0 : places[i];")
index("sort-positions", "carry + before", "carry + before + (first + t > 0 ? 1 : 0)",
      within="counts[first + t] = carry + before;")
index("sort-chunk-end", "(part + 1) * chunk < n ? (part + 1) * chunk : n", "(part + 1) * chunk < n ? (part + 1) * chunk - 1 : n",
      within="(part + 1) * chunk < n ? (part + 1) * chunk : n;\n    for (std::int64_t i = part")
barrier("sort-count-cleared", "found[t] = 0;\n    ")
barrier("sort-count-written", "shift)], 1u);\n    ")
barrier("sort-sums-written", "warp_sums[warp] = before + value;\n    ")
barrier("sort-sums-read", "carry += total;\n    ")
barrier("sort-ranks-cleared", "found[w][t] = 0;\n      ")
barrier("sort-ranks-written", "__popc(same));\n      ")
barrier("sort-ranks-summed", "total += count;\n      }\n      ")
barrier("sort-ranks-read", "places_out[to] = places[i];\n      }\n      ")

value, index, _, _ = group("ops/loss/cross_entropy.cu", "ops", "Op.CrossEntropy/cuda_f32")
value("cross-entropy", "losses[row] = loss;", "losses[row] = loss * P(1.001);")
value("cross-entropy-grad", "(c + k == label ? p - kept : p) * factor",
      "(c + k == label ? p - kept : p) * factor * P(1.001)")
value("cross-entropy-targets", "total * (log_total + (state.most - shift)) - sum",
      "(total * (log_total + (state.most - shift)) - sum) * P(1.001)")
value("cross-entropy-targets-grad", "(p * total - (kept * target[k] + even)) * factor",
      "(p * total - (kept * target[k] + even)) * factor * P(1.001)")
value("cross-entropy-total", "static_cast<P>(sum * part)", "static_cast<P>(sum * part * 1.001)")
value("cross-entropy-share", "*share = part;", "*share = part * 1.001;")
value("count-correct", "static_cast<unsigned long long>(hits)", "static_cast<unsigned long long>(hits + 1)",
      "Op.CountCorrectOfTheBestThree/cuda_f32")
index("cross-entropy-label", "from[labels[row]]", "from[labels[row] + 1 < in.cols ? labels[row] + 1 : 0]")
index("count-correct-rank", "before < k", "before <= k", "Op.CountCorrectOfTheBestThree/cuda_f32")

value, index, _, _ = group("ops/loss/linear_cross_entropy.cu", "ops", "Op.LinearCrossEntropy/cuda_f32")
value("scale-gradient", "value.at[k] * factor", "value.at[k] * factor * P(1.001)")
value("scale-gradient-rest", ": from[i] * factor", ": from[i] * factor * P(1.001)")
value("scale-gradient-adds", "widen(before.at[k]) + scaled", "widen(before.at[k]) + scaled * P(1.001)",
      "LinearCrossEntropyOnDevices.LaterPassesAddToTheGradient")
index("scale-gradient-end", "i < n; i += global_threads())\n    into", "i <= n; i += global_threads())\n    into")

value, index, _, _ = group("ops/loss/mse.cu", "ops", "Op.MeanSquaredError/cuda_f32")
value("mse-parts", "partial[blockIdx.x] = sum;", "partial[blockIdx.x] = sum * 1.001;")
value("mse-mean", "static_cast<P>(sum / n)", "static_cast<P>(sum / n * 1.001)")
value("mse-grad", "(a[k] - b[k]) * scale", "(a[k] - b[k]) * scale * P(1.001)")
index("mse-part-end", "n - begin < each ? n - begin : each", "(n - begin < each ? n - begin : each) - 1")

value, index, _, _ = group("ops/loss/loss_sum.cu", "ops", "Op.LossSum/cuda_f32")
value("loss-sum", "__dmul_rn(whole, static_cast<double>(widen(*loss)))",
      "__dmul_rn(whole, static_cast<double>(widen(*loss))) * 1.001")
value("loss-share", "__dmul_rn(weight, *share)", "__dmul_rn(weight, *share) * 1.001")
value("label-count", "labels[i] != ignored ? 1 : 0", "labels[i] != ignored ? 1 : 1", "Op.LabelShares/cuda_f32")
value("label-shares", "counts[i] / sum", "counts[i] / (sum * 1.001)", "Op.LabelShares/cuda_f32")
index("label-count-end", "i < n", "i <= n", "Op.LabelShares/cuda_f32",
      within="i < n; i += one_block) sum += labels")

# ---- optimizers ----
agrees = "Optimizers/OptimOnDevice.AgreesWithTheCpu/*"
value, _, _, _ = group("optim/sgd.cuh", "optim", agrees)
value("sgd", "weight.at[k] = sgd_step(weight.at[k], gradient.at[k], c);",
      "weight.at[k] = sgd_step(weight.at[k], gradient.at[k], c) * T(1.001);")
value("sgd-momentum", "weight.at[k] = next.w;", "weight.at[k] = next.w * T(1.001);")
value("sgd-moment", "moment.at[k] = next.m;", "moment.at[k] = next.m * T(1.001);")
value, _, _, _ = group("optim/adam.cu", "optim", agrees)
value("adam", "weight.at[k] = next.w;", "weight.at[k] = next.w * T(1.001);")
value("adam-first", "first.at[k] = next.m;", "first.at[k] = next.m * T(1.001);")
value("adam-second", "second.at[k] = next.v;", "second.at[k] = next.v * T(1.001);")
value, _, _, _ = group("optim/layerwise.cu", "optim", agrees)
value("lars-norms", "grads += scaled * scaled;", "grads += scaled * scaled * 1.001;")
value("lars-trust", "lars_trust_of(constants, lr, options.weight_decay, options.adapts, norms.values, norms.others)",
      "lars_trust_of(constants, lr, options.weight_decay, options.adapts, norms.values, norms.others) * 1.001")
value("lars-clip-lr", "coefficients.lr * options.lr_scale", "coefficients.lr")
value("lamb-moments", "second.at[k] = next.v;", "second.at[k] = next.v * T(1.001);")
value("lamb-normalised", "lamb_grad_scale(*coefficients, squares)", "coefficients->grad_scale")
value("lamb-norms", "steps += step * step;", "steps += step * step * 1.001;")
value("lamb-length",
      "lamb_length(*coefficients, options.lr_scale, options.adapts, norms.values, norms.others)",
      "lamb_length(*coefficients, options.lr_scale, options.adapts, norms.values, norms.others) * 1.001")
value("lamb", "weight.at[k] -= length * lamb_direction(weight.at[k], first.at[k], second.at[k], c);",
      "weight.at[k] -= length * lamb_direction(weight.at[k], first.at[k], second.at[k], c) * T(1.001);")
value("norms-of-ranges", "others += partials[i].others;", "others += partials[i].others * 1.001;")
_, index, _, _ = group("optim/shares.cuh", "optim", agrees)
index("share-end", "begin + size < row[1] ? begin + size : row[1]", "(begin + size < row[1] ? begin + size : row[1]) - 1")
index("share-packs", "i < packs", "i <= packs")
value, index, _, _ = group("optim/clip.cu", "optim", "NormsOnDevice.*")
value("sum-of-squares", "return scaled * scaled;", "return scaled * scaled * 1.001;")
value("largest-magnitude", "x < 0 ? -x : x", "(x < 0 ? -x : x) * 1.001")
value("join-of-norms", "*result = joined;", "*result = joined * 1.001;")
value("clip-norm", "*norm = length;", "*norm = length * 1.001;")
value("clip-scale", "*grad_scale *= scale > 1.0 ? 1.0 : scale;", "*grad_scale *= (scale > 1.0 ? 1.0 : scale) * 1.001;")
index("norm-chunk-end", "n - begin < chunk_elements ? n - begin : chunk_elements",
      "(n - begin < chunk_elements ? n - begin : chunk_elements) - 1")
scaled = "*LossScaling*cuda"
value, index, _, _ = group("optim/loss_scale.cu", "optim", scaled)
value("scale-seed", "share * *scale", "share * *scale * 1.001")
value("keep-or-restore", "to[i] = from[i];", "to[i] = from[i] * 1.001f;")
index("keep-or-restore-end", "i < n", "i < n - 15")
value, _, _, _ = group("optim/verdict.h", "optim", scaled)
value("verdict-scale", "*v.scale * 0.5 > options.floor ? *v.scale * 0.5 : options.floor",
      "(*v.scale * 0.5 > options.floor ? *v.scale * 0.5 : options.floor) * 1.001")
value("verdict-unscale", "(v.max_norm > 0 && room < 1.0 ? room : 1.0) / *v.scale",
      "(v.max_norm > 0 && room < 1.0 ? room : 1.0) / *v.scale * 1.001")
value("verdict-step", "v.input->step - unknown", "v.input->step")
value("verdict-average", "v.input->average_step - unknown", "v.input->average_step")
value("verdict-uncounted", "*v.uncounted += v.input->samples;", "")
value("verdict-norm-skipped", "*v.norm = -1;", "*v.norm = 1;")
value, _, _, _ = group("optim/shares.cuh", "optim", scaled)
value("narrow-copy", "rounded.at[k] = static_cast<float>(values.at[k]);",
      "rounded.at[k] = static_cast<float>(values.at[k]) * 1.01f;")
value("fused-average", "average.at[k] = blended(average.at[k], values.at[k], share);",
      "average.at[k] = blended(average.at[k], values.at[k], share) * T(1.001);")
for kernel, file in (("adam", "adam.cu"), ("sgd", "sgd.cuh")):
    value, _, _, _ = group(f"optim/{file}", "optim", scaled)
    value(f"{kernel}-skip", "if (coefficients->skip) return;", "")
value, _, _, _ = group("optim/layerwise.cu", "optim", scaled)
value("lamb-moments-skip", "if (coefficients->skip) return;", "", within="""T* v, Squares* partials) {
  if (coefficients->skip) return;""")
value("lamb-skip", "if (coefficients->skip) return;", "", within="""const T* v, C copies) {
  if (coefficients->skip) return;""")
value, index, _, _ = group("optim/ema.cu", "optim", "EmaOnDevice.*")
value("ema-blend", "blended(average, value, *share)", "blended(average, value, *share) * T(1.001)")
value("ema-exchange", "b[i] = kept;", "b[i] = kept * T(1.001);")
index("ema-exchange-packs", "store_pack(b + i * count, of_a);", "store_pack(b + i * count, of_b);")
