// Lowers convolutions to the kernels of kernels_winograd.h.
#include "worker/engine/backend/cpu/lower_winograd.h"

#include <algorithm>
#include <optional>

#include "worker/engine/backend/cpu/parallel.h"

namespace trainyard::engine::cpu {
namespace {

// Every group of tiles reads all transformed weights. If there are more weights than this, oneDNN's
// Winograd wins, which reads them less often. The choice depends only on the shape, so that runs
// are alike.
constexpr int64_t kWeightsMax = int64_t{192} * 192;
// The weights are transformed once a step, which this many tiles of 4x4 hide. The number is that of
// the largest batch, so that smaller ones are computed alike.
constexpr int64_t kTilesMin = 64;

// The sums of a share of the gradient of the weights are cleared, and added to those of others,
// which this many tiles hide. All shares together have at most this many sums.
constexpr int64_t kTilesOfShare = 256;
constexpr int64_t kSumsMax = int64_t{8} << 20;

// A share of the tiles, [begin, end).
struct TileShare {
  int64_t begin, end;
};

// Returns one of so many shares, of whole groups. A result belongs to one tile or to one share, so
// it is rounded alike in every run with as many shares.
TileShare TileShareOf(int64_t share, int64_t shares, int64_t tiles) {
  const int64_t groups = (tiles + kWinogradGroup - 1) / kWinogradGroup;
  return {share * groups / shares * kWinogradGroup,
          std::min((share + 1) * groups / shares * kWinogradGroup, tiles)};
}

// Emits the call that convolves x to y, both in blocks of 16, with transformed weights. The bias
// may be null.
void EmitWinograd(Lowering& lowering, const Node& node, const WinogradShape& shape, BufferId x,
                  const float* u, const float* bias, BufferId y) {
  const int64_t scratch_floats = WinogradScratch(shape);
  const BufferId scratch =
      lowering.AddScratch(lowering.threads() * scratch_floats * int64_t{sizeof(float)});
  const int threads = lowering.threads();
  const int64_t tiles = lowering.rows() * shape.tiles();
  const bool relu = node.relu;
  Program* program = &lowering.program();
  const WinogradKernels* kernels = BestKernels<float>().winograd;
  auto run = [=](RunState&) {
    ParallelFor(threads, threads, [&](int64_t thread) {
      const TileShare share = TileShareOf(thread, threads, tiles);
      kernels->convolve(shape, share.begin, share.end, program->ptr<float>(x), u, bias, relu,
                        program->ptr<float>(y),
                        program->ptr<float>(scratch) + thread * scratch_floats);
    });
  };
  lowering.EmitCall(node, run, {x, y, scratch});
}

}  // namespace

std::optional<WinogradShape> FindWinograd(Lowering& lowering, const Node& node,
                                          const ConvFormats& conv) {
  const ConvAttributes& attributes = node.conv();
  const bool suits = BestKernels<float>().winograd != nullptr && attributes.kernel == 3 &&
                     attributes.stride == 1 && attributes.padding == 1 &&
                     attributes.dilation == 1 && attributes.groups == 1 &&
                     attributes.weights == 1 && lowering.type() == NumberType::kF32 &&
                     conv.input.block == 16 && conv.output.block == 16;
  const WinogradShape shape = {conv.input.height, conv.input.width, conv.input.channels,
                               conv.output.channels};
  const bool pays = shape.in_channels * shape.out_channels <= kWeightsMax &&
                    lowering.largest_rows() * shape.tiles() >= kTilesMin;
  return suits && pays ? std::optional(shape) : std::nullopt;
}

void LowerConvByWinograd(Lowering& lowering, const Node& node, const WinogradShape& shape) {
  const ConvFormats& conv = lowering.convs().at(node.name);
  const float* u = lowering.weights().Transformed(lowering.Parameters({node.inputs[1]})[0], shape,
                                                  false, *BestKernels<float>().winograd,
                                                  lowering.program().packed_weights);
  const float* bias = node.inputs.size() > 2 ? lowering.Parameter(node.inputs[2]) : nullptr;
  EmitWinograd(lowering, node, shape, lowering.In(node.inputs[0], conv.input), u, bias,
               lowering.BufferOf(node.outputs[0]));
}

// dx is dy convolved with the weights turned by 180 degrees, with inputs and outputs exchanged.
void LowerConvInputGradientByWinograd(Lowering& lowering, const Node& node,
                                      const WinogradShape& shape) {
  const ConvFormats& conv = lowering.convs().at(node.name);
  const float* u = lowering.weights().Transformed(lowering.Parameters({node.inputs[1]})[0], shape,
                                                  true, *BestKernels<float>().winograd,
                                                  lowering.program().packed_weights);
  const WinogradShape turned = {shape.height, shape.width, shape.out_channels, shape.in_channels};
  lowering.SetLayout(node.outputs[0], conv.input);
  EmitWinograd(lowering, node, turned, lowering.In(node.inputs[0], conv.output), u, nullptr,
               lowering.BufferOf(node.outputs[0]));
}

void LowerConvParameterGradientByWinograd(Lowering& lowering, const Node& node,
                                          const WinogradShape& shape) {
  const ConvFormats& conv = lowering.convs().at(node.name);
  const BufferId dy = lowering.In(node.inputs[0], conv.output);
  const BufferId x = lowering.In(node.inputs[1], conv.input);
  float* dweights = lowering.GradientSums(node.outputs[0]);
  float* dbias = node.outputs.size() > 1 ? lowering.GradientSums(node.outputs[1]) : nullptr;
  // A share has the sums of the products, then those of the bias.
  const int64_t products = shape.products();
  const int64_t sums_floats = products + 16 * shape.out_blocks();
  const int64_t scratch_floats = WinogradScratch(shape);
  const int threads = lowering.threads();
  const int64_t tiles = lowering.rows() * shape.tiles();
  const int64_t shares =
      lowering.deterministic()
          ? lowering.PartsOf(lowering.Flops(node),
                             std::min(tiles / kTilesOfShare, kSumsMax / sums_floats))
          : threads;
  // If there are fewer shares than threads, these also share the outputs, and each of them
  // transforms the inputs.
  const int64_t ranges = std::clamp<int64_t>(threads / shares, 1, shape.out_blocks());
  const BufferId sums = lowering.AddScratch(shares * sums_floats * int64_t{sizeof(float)});
  const BufferId scratch =
      lowering.AddScratch(lowering.threads() * scratch_floats * int64_t{sizeof(float)});
  Program* program = &lowering.program();
  const WinogradKernels* kernels = BestKernels<float>().winograd;
  auto run = [=](RunState& state) {
    float* all_sums = program->ptr<float>(sums);
    ParallelChunks(threads, shares * sums_floats, [&](int64_t begin, int64_t count) {
      std::fill_n(all_sums + begin, count, 0.0f);
    });
    ParallelShares(threads, shares * ranges, [&](int64_t item, int64_t thread) {
      const TileShare share = TileShareOf(item / ranges, shares, tiles);
      const int64_t range = item % ranges;
      const WinogradBlocks blocks = {range * shape.out_blocks() / ranges,
                                     (range + 1) * shape.out_blocks() / ranges};
      float* own = all_sums + item / ranges * sums_floats;
      kernels->add_gradient(shape, share.begin, share.end, blocks, program->ptr<float>(x),
                            program->ptr<float>(dy), own,
                            dbias == nullptr ? nullptr : own + products,
                            program->ptr<float>(scratch) + thread * scratch_floats);
    });
    const bool add = state.accumulate;
    ParallelFor(threads, shape.in_channels, [&](int64_t channel) {
      kernels->finish_gradient(shape, channel, shares, sums_floats, all_sums, add, dweights);
    });
    for (int64_t k = 0; dbias != nullptr && k < shape.out_channels; ++k) {
      float sum = add ? dbias[k] : 0.0f;
      for (int64_t share = 0; share < shares; ++share) {
        sum += all_sums[share * sums_floats + products + k];
      }
      dbias[k] = sum;
    }
  };
  lowering.EmitCall(node, run, {dy, x, sums, scratch});
}

}  // namespace trainyard::engine::cpu
