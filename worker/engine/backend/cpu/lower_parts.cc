// Splits the work of oneDNN's primitives into parts, and emits the calls that execute them.
#include <algorithm>
#include <utility>

#include "worker/engine/backend/cpu/lowering.h"
#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

// This many parts are shared evenly enough by any number of threads up to as many.
constexpr int64_t kPartsMax = 16;
// This much takes some 20 us on an AVX-512 core, beside which it costs little to call a primitive.
constexpr double kPartFlops = 4e6;

// The parts of the thread, as ParallelShares gives them out.
RowPart ShareOf(int64_t parts, int64_t thread, int64_t threads) {
  const int64_t begin = parts * thread / threads;
  return {begin, parts * (thread + 1) / threads - begin};
}

int64_t ThreadsFor(const std::vector<PrimitivePart>& parts, int threads) {
  return std::min<int64_t>(threads, static_cast<int64_t>(parts.size()));
}

void Execute(const std::vector<PrimitivePart>& parts, int threads, const dnnl::stream& stream) {
  const auto used = static_cast<int>(ThreadsFor(parts, threads));
  ParallelShares(used, static_cast<int64_t>(parts.size()), [&](int64_t i, int64_t) {
    const PrimitivePart& part = parts[static_cast<size_t>(i)];
    part.primitive.execute(stream, part.arguments);
  });
}

// Stores the sum of all parts, or adds it to what is there.
void LeaveSums(const Program& program, const PartialSums& sums, bool add, int threads, float* to) {
  const Kernels<float>& kernels = BestKernels<float>();
  ParallelChunks(threads, sums.count, [&](int64_t begin, int64_t count) {
    const float* from = program.ptr<float>(sums.buffer) + begin;
    if (!add) std::copy_n(from, count, to + begin);
    for (int64_t part = add ? 0 : 1; part < sums.parts; ++part) {
      kernels.accumulate(from + part * sums.stride, to + begin, count);
    }
  });
}

}  // namespace

void PartialSums::Fold(const Program& program, int threads) const {
  if (parts < 2) return;
  const Kernels<float>& kernels = BestKernels<float>();
  ParallelChunks(threads, count, [&](int64_t begin, int64_t chunk) {
    float* const first = program.ptr<float>(buffer) + begin;
    for (int64_t part = 1; part < parts; ++part) {
      kernels.accumulate(first + part * stride, first, chunk);
    }
  });
}

int64_t Lowering::PartsOf(double flops, int64_t most) const {
  if (!options_.deterministic) return 1;
  const int64_t limit = std::min({kPartsMax, most, static_cast<int64_t>(flops / kPartFlops)});
  int64_t parts = 1;
  while (parts * 2 <= limit) parts *= 2;
  return parts;
}

std::vector<RowPart> Lowering::PartRows(const Node& node, int64_t rows_min) const {
  const int64_t parts = PartsOf(Flops(node), rows() / rows_min);
  const int64_t share = (rows() + parts - 1) / parts;
  std::vector<RowPart> ranges;
  for (int64_t begin = 0; begin < rows(); begin += share) {
    ranges.push_back({begin, std::min(share, rows() - begin)});
  }
  return ranges;
}

void Lowering::AddScratchpads(std::vector<PrimitivePart>& parts, std::vector<BufferId>& buffers) {
  size_t bytes = 0;
  for (const PrimitivePart& part : parts) bytes = std::max(bytes, part.scratchpad.get_size());
  const int64_t threads = bytes == 0 ? 0 : ThreadsFor(parts, options_.threads);
  for (int64_t thread = 0; thread < threads; ++thread) {
    const BufferId scratch = AddScratch(static_cast<int64_t>(bytes));
    buffers.push_back(scratch);
    const RowPart share = ShareOf(static_cast<int64_t>(parts.size()), thread, threads);
    for (int64_t i = share.begin; i < share.begin + share.rows; ++i) {
      PrimitivePart& part = parts[static_cast<size_t>(i)];
      if (part.scratchpad.get_size() == 0) continue;
      part.arguments.insert({DNNL_ARG_SCRATCHPAD, Memory(part.scratchpad, scratch)});
    }
  }
}

PartialSums Lowering::AddPartialSums(int argument, const dnnl::memory::desc& desc,
                                     std::vector<PrimitivePart>& parts,
                                     std::vector<BufferId>& buffers) {
  constexpr int64_t kSize = sizeof(float);
  const auto bytes = static_cast<int64_t>(desc.get_size());
  const int64_t stride = (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  const auto count = static_cast<int64_t>(parts.size());
  const PartialSums sums = {AddScratch(count * stride), count, stride / kSize, bytes / kSize};
  buffers.push_back(sums.buffer);
  for (int64_t i = 0; i < count; ++i) {
    parts[static_cast<size_t>(i)].arguments.insert(
        {argument, Memory(desc, sums.buffer, i * stride)});
  }
  return sums;
}

void Lowering::EmitParts(const Node& node, std::vector<PrimitivePart> parts,
                         std::vector<BufferId> buffers) {
  AddScratchpads(parts, buffers);
  dnnl::stream stream = stream_;
  const int threads = options_.threads;
  EmitCall(
      node, [=](RunState&) { Execute(parts, threads, stream); }, buffers);
}

std::function<void()> Lowering::Execution(std::vector<PrimitivePart> parts) const {
  return [parts = std::move(parts), threads = options_.threads, stream = stream_] {
    Execute(parts, threads, stream);
  };
}

// The parts leave their results in scratch memory if these must be added to each other or to other
// sums, or if their layout is not that of the arena.
void Lowering::EmitParameterGradient(const Node& node, std::vector<PrimitivePart> parts,
                                     std::vector<BufferId> buffers,
                                     const dnnl::memory::desc& computed,
                                     const dnnl::memory::desc& plain) {
  AddScratchpads(parts, buffers);
  const bool is_whole = parts.size() == 1;
  const bool is_plain = computed == plain;
  std::vector<PrimitivePart> direct = is_whole ? parts : std::vector<PrimitivePart>();
  float* const weight_sums = GradientSums(node.outputs[0]);
  const PartialSums weights = AddPartialSums(DNNL_ARG_DIFF_WEIGHTS, computed, parts, buffers);
  const dnnl::memory weight_scratch = Memory(computed, weights.buffer);
  const dnnl::memory weight_arena(plain, engine_, weight_sums);
  PartialSums biases;
  float* bias_sums = nullptr;
  if (node.outputs.size() > 1) {
    const dnnl::memory::desc bias({GradientEntry(node.outputs[1]).count}, kF32,
                                  dnnl::memory::format_tag::x);
    bias_sums = GradientSums(node.outputs[1]);
    biases = AddPartialSums(DNNL_ARG_DIFF_BIAS, bias, parts, buffers);
    if (is_whole) {
      direct[0].arguments.insert({DNNL_ARG_DIFF_BIAS, dnnl::memory(bias, engine_, bias_sums)});
    }
  }
  if (is_whole) {
    direct[0].arguments.insert({DNNL_ARG_DIFF_WEIGHTS, is_plain ? weight_arena : weight_scratch});
  }
  const Unpacking unpack(engine_, computed, plain);
  const Arguments unpacked = {{DNNL_ARG_FROM, weight_scratch}, {DNNL_ARG_TO, weight_arena}};
  Program* program = &program_;
  dnnl::stream stream = stream_;
  const int threads = options_.threads;
  auto run = [=](RunState& state) {
    const bool add = state.accumulate;
    const bool is_direct = is_whole && !add;
    Execute(is_direct ? direct : parts, threads, stream);
    if (!is_plain) {
      weights.Fold(*program, threads);
      unpack.Execute(stream, unpacked, add);
    } else if (!is_direct) {
      LeaveSums(*program, weights, add, threads, weight_sums);
    }
    if (!is_direct && bias_sums != nullptr) {
      LeaveSums(*program, biases, add, threads, bias_sums);
    }
  };
  EmitCall(node, std::move(run), buffers);
}

}  // namespace trainyard::engine::cpu
