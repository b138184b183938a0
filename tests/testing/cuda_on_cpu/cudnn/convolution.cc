// Convolutions of images and their two gradients: direct loops, channels innermost.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cudnn/operation.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

using Kind = ConvolutionShape::Kind;

// x [n, c, h, w], weight [k, c / groups, r, s], y [n, k, p, q]. Gradients have the shapes of their
// values.
struct Convolution {
  Kind kind = Kind::kForward;
  TensorSpec x, weight, y;
  int64_t n = 0, c = 0, h = 0, w = 0, k = 0, p = 0, q = 0, r = 0, s = 0;
  int64_t group_c = 0, group_k = 0, groups = 1;
  std::vector<int64_t> padding, stride, dilation;
  bool is_flipped = false;  // a convolution in the mathematical sense
  double alpha = 1, beta = 0;

  const TensorSpec& output() const {
    return kind == Kind::kForward ? y : kind == Kind::kInputGradient ? x : weight;
  }
};

// Elements are dense, with images as [n, h, w, c].
const Order kImageOrder = {0, 2, 3, 1};

// Calls `visit(pixel of x, pixel of y, tap)` for all pairs that meet, over the pixels of y of
// sample `row`.
template <typename Visit>
void ForEachTap(const Convolution& conv, int64_t row, const Visit& visit) {
  for (int64_t p = 0; p < conv.p; ++p) {
    for (int64_t q = 0; q < conv.q; ++q) {
      const int64_t y_pixel = (row * conv.p + p) * conv.q + q;
      for (int64_t r = 0; r < conv.r; ++r) {
        const int64_t h = p * conv.stride[0] - conv.padding[0] + r * conv.dilation[0];
        if (h < 0 || h >= conv.h) {
          continue;
        }
        for (int64_t s = 0; s < conv.s; ++s) {
          const int64_t w = q * conv.stride[1] - conv.padding[1] + s * conv.dilation[1];
          if (w < 0 || w >= conv.w) {
            continue;
          }
          const int64_t tap = r * conv.s + s;
          visit((row * conv.h + h) * conv.w + w, y_pixel,
                conv.is_flipped ? conv.r * conv.s - 1 - tap : tap);
        }
      }
    }
  }
}

// Computes sums[i] += factor * values[i].
void AddScaled(float factor, const float* __restrict values, int64_t count,
               float* __restrict sums) {
  for (int64_t i = 0; i < count; ++i) {
    sums[i] += factor * values[i];
  }
}

std::vector<float> Forward(const Convolution& conv, Memory* memory) {
  const std::vector<float> x = memory->Load(conv.x, kImageOrder);
  const std::vector<float> weight = memory->Load(conv.weight, {2, 3, 1, 0});  // [r, s, c, k]
  std::vector<float> y(static_cast<size_t>(conv.n * conv.p * conv.q * conv.k), 0.0f);
  for (int64_t row = 0; row < conv.n; ++row) {
    ForEachTap(conv, row, [&](int64_t x_pixel, int64_t y_pixel, int64_t tap) {
      for (int64_t c = 0; c < conv.c; ++c) {
        const int64_t first_k = c / conv.group_c * conv.group_k;
        AddScaled(x[static_cast<size_t>(x_pixel * conv.c + c)],
                  weight.data() + (tap * conv.group_c + c % conv.group_c) * conv.k + first_k,
                  conv.group_k, y.data() + y_pixel * conv.k + first_k);
      }
    });
  }
  return y;
}

std::vector<float> InputGradient(const Convolution& conv, Memory* memory) {
  const std::vector<float> dy = memory->Load(conv.y, kImageOrder);
  const std::vector<float> weight = memory->Load(conv.weight, kImageOrder);  // [k, r, s, c]
  std::vector<float> dx(static_cast<size_t>(conv.n * conv.h * conv.w * conv.c), 0.0f);
  for (int64_t row = 0; row < conv.n; ++row) {
    ForEachTap(conv, row, [&](int64_t x_pixel, int64_t y_pixel, int64_t tap) {
      for (int64_t k = 0; k < conv.k; ++k) {
        AddScaled(dy[static_cast<size_t>(y_pixel * conv.k + k)],
                  weight.data() + (k * conv.r * conv.s + tap) * conv.group_c, conv.group_c,
                  dx.data() + x_pixel * conv.c + k / conv.group_k * conv.group_c);
      }
    });
  }
  return dx;
}

std::vector<float> WeightGradient(const Convolution& conv, Memory* memory) {
  const std::vector<float> x = memory->Load(conv.x, kImageOrder);
  const std::vector<float> dy = memory->Load(conv.y, kImageOrder);
  const auto size = static_cast<size_t>(conv.k * conv.r * conv.s * conv.group_c);
  // Many pixels meet in one element, so samples are summed in f32 and their sums in f64.
  std::vector<double> total(size, 0.0);
  std::vector<float> part(size);
  for (int64_t row = 0; row < conv.n; ++row) {
    std::fill(part.begin(), part.end(), 0.0f);
    ForEachTap(conv, row, [&](int64_t x_pixel, int64_t y_pixel, int64_t tap) {
      for (int64_t k = 0; k < conv.k; ++k) {
        AddScaled(dy[static_cast<size_t>(y_pixel * conv.k + k)],
                  x.data() + x_pixel * conv.c + k / conv.group_k * conv.group_c, conv.group_c,
                  part.data() + (k * conv.r * conv.s + tap) * conv.group_c);
      }
    });
    for (size_t i = 0; i < size; ++i) {
      total[i] += static_cast<double>(part[i]);
    }
  }
  return std::vector<float>(total.begin(), total.end());
}

void Run(const Convolution& conv, Memory* memory) {
  std::vector<float> result = conv.kind == Kind::kForward         ? Forward(conv, memory)
                              : conv.kind == Kind::kInputGradient ? InputGradient(conv, memory)
                                                                  : WeightGradient(conv, memory);
  const auto alpha = static_cast<float>(conv.alpha);
  const auto beta = static_cast<float>(conv.beta);
  if (beta == 0) {
    for (float& value : result) {
      value *= alpha;
    }
  } else {
    const std::vector<float> before = memory->Load(conv.output(), kImageOrder);
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = alpha * result[i] + beta * before[i];
    }
  }
  memory->Store(conv.output(), kImageOrder, result);
}

// The names of the attributes of each of the three operations.
struct Names {
  cudnnBackendAttributeName_t settings, x, weight, y, alpha, beta;
};

Names NamesOf(Kind kind) {
  switch (kind) {
    case Kind::kForward:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case Kind::kInputGradient:
      return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Kind::kWeightGradient:
      break;
  }
  return {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
}

cudnnStatus_t ReadSettings(const Descriptor& settings, Convolution* conv,
                           std::vector<int64_t>* post_padding) {
  TY_CUDNN_TRY(ExpectFloatMath(settings.Int(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 0)));
  conv->padding = settings.Ints(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  *post_padding = settings.Ints(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  conv->stride = settings.Ints(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  conv->dilation = settings.Ints(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  conv->is_flipped =
      settings.Int(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION) == CUDNN_CONVOLUTION;
  const int64_t spatial = settings.Int(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0);
  if (spatial != 2 || conv->x.rank() != 4 || conv->weight.rank() != 4 || conv->y.rank() != 4) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED,
                absl::StrCat("convolution over ", spatial, " dimensions of x ",
                             ShapeText(conv->x.dims), ", expected 2 of 4"));
  }
  return ExpectShape(conv->padding.size() == 2 && post_padding->size() == 2 &&
                         conv->stride.size() == 2 && conv->dilation.size() == 2,
                     "convolution: paddings, strides and dilations need 2 elements each");
}

cudnnStatus_t ReadShapes(const std::vector<int64_t>& post_padding, Convolution* conv) {
  const auto& x = conv->x.dims;
  const auto& weight = conv->weight.dims;
  const auto& y = conv->y.dims;
  conv->n = x[0], conv->c = x[1], conv->h = x[2], conv->w = x[3];
  conv->k = y[1], conv->p = y[2], conv->q = y[3];
  conv->r = weight[2], conv->s = weight[3];
  conv->group_c = weight[1];
  conv->groups = conv->c / conv->group_c;
  bool fits = y[0] == conv->n && weight[0] == conv->k && conv->c % conv->group_c == 0 &&
              conv->groups > 0 && conv->k % conv->groups == 0;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t reach = conv->dilation[i] * (weight[2 + i] - 1) + 1;
    const int64_t room = x[2 + i] + conv->padding[i] + post_padding[i] - reach;
    fits = fits && conv->stride[i] >= 1 && conv->dilation[i] >= 1 && room >= 0 &&
           y[2 + i] == room / conv->stride[i] + 1;
  }
  TY_CUDNN_TRY(
      ExpectShape(fits, absl::StrCat("convolution: x ", ShapeText(x), ", weight ",
                                     ShapeText(weight), " and y ", ShapeText(y), " do not fit")));
  conv->group_k = conv->k / conv->groups;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

cudnnStatus_t CompileConvolution(const Descriptor& descriptor, Operation* operation) {
  Convolution conv;
  conv.kind = descriptor.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
                  ? Kind::kForward
              : descriptor.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                  ? Kind::kInputGradient
                  : Kind::kWeightGradient;
  const Names names = NamesOf(conv.kind);
  conv.x = *FindTensor(descriptor, names.x);
  conv.weight = *FindTensor(descriptor, names.weight);
  conv.y = *FindTensor(descriptor, names.y);
  conv.alpha = descriptor.Number(names.alpha, 1);
  conv.beta = descriptor.Number(names.beta, 0);
  std::vector<int64_t> post_padding;
  TY_CUDNN_TRY(ReadSettings(*descriptor.Child(names.settings), &conv, &post_padding));
  TY_CUDNN_TRY(ReadShapes(post_padding, &conv));
  if (conv.beta != 0 && conv.output().is_virtual) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED, "convolution: beta needs a result in memory");
  }

  ConvolutionShape shape;
  shape.kind = conv.kind;
  shape.rows = conv.n, shape.channels = conv.c, shape.height = conv.h, shape.width = conv.w;
  shape.out_channels = conv.k, shape.out_height = conv.p, shape.out_width = conv.q;
  shape.kernel_height = conv.r, shape.kernel_width = conv.s;
  shape.groups = conv.groups;
  operation->convolution = shape;
  for (const TensorSpec* spec : {&conv.x, &conv.weight, &conv.y}) {
    (spec == &conv.output() ? operation->outputs : operation->inputs).push_back(*spec);
  }
  operation->run = [conv = std::make_shared<const Convolution>(std::move(conv))](Memory* memory) {
    Run(*conv, memory);
  };
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace trainyard::cuda_on_cpu::cudnn
