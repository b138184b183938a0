// Pooling of images and its gradient: the largest element or the average of a window.
#include <limits>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "tests/testing/cuda_on_cpu/cudnn/operation.h"

namespace trainyard::cuda_on_cpu::cudnn {
namespace {

// x [n, c, h, w], y [n, c, p, q]; gradients have the shapes of their values. An index is the
// element's position within its window, row-major.
struct Resample {
  TensorSpec large, small;                // x or dx; y or dy
  std::optional<TensorSpec> index, x, y;  // x and y for the gradient
  std::vector<int64_t> window, stride, padding;
  bool is_max = false;
  bool counts_padding = false;
};

const Order kOrder = {0, 1, 2, 3};

// Calls `function(plane, p, q, element of y)` for every window.
template <typename Function>
void ForEachWindow(const Resample& resample, const Function& function) {
  const auto& small = resample.small.dims;
  size_t element = 0;
  for (int64_t plane = 0; plane < small[0] * small[1]; ++plane) {
    for (int64_t p = 0; p < small[2]; ++p) {
      for (int64_t q = 0; q < small[3]; ++q) {
        function(plane, p, q, element++);
      }
    }
  }
}

// Calls `visit(element of x, position in the window)` for the elements that are not padding.
template <typename Visit>
void ForEachInWindow(const Resample& resample, int64_t plane, int64_t p, int64_t q,
                     const Visit& visit) {
  const int64_t height = resample.large.dims[2], width = resample.large.dims[3];
  for (int64_t r = 0; r < resample.window[0]; ++r) {
    for (int64_t s = 0; s < resample.window[1]; ++s) {
      const int64_t h = p * resample.stride[0] - resample.padding[0] + r;
      const int64_t w = q * resample.stride[1] - resample.padding[1] + s;
      if (h >= 0 && h < height && w >= 0 && w < width) {
        visit(static_cast<size_t>((plane * height + h) * width + w), r * resample.window[1] + s);
      }
    }
  }
}

int64_t CountOf(const Resample& resample, int64_t plane, int64_t p, int64_t q) {
  if (resample.counts_padding) {
    return resample.window[0] * resample.window[1];
  }
  int64_t count = 0;
  ForEachInWindow(resample, plane, p, q, [&](size_t, int64_t) { ++count; });
  return count;
}

void RunForward(const Resample& resample, Memory* memory) {
  const std::vector<float> x = memory->Load(resample.large, kOrder);
  std::vector<float> y(static_cast<size_t>(resample.small.elements()));
  std::vector<float> index(y.size());
  ForEachWindow(resample, [&](int64_t plane, int64_t p, int64_t q, size_t element) {
    double sum = 0;
    float largest = -std::numeric_limits<float>::infinity();
    ForEachInWindow(resample, plane, p, q, [&](size_t place, int64_t within) {
      sum += static_cast<double>(x[place]);
      if (!(x[place] <= largest)) {
        largest = x[place];
        index[element] = static_cast<float>(within);
      }
    });
    y[element] =
        resample.is_max
            ? largest
            : static_cast<float>(sum / static_cast<double>(CountOf(resample, plane, p, q)));
  });
  memory->Store(resample.small, kOrder, y);
  if (resample.index) {
    memory->Store(*resample.index, kOrder, index);
  }
}

void RunBackward(const Resample& resample, Memory* memory) {
  const std::vector<float> dy = memory->Load(resample.small, kOrder);
  std::vector<float> index, x, y;
  if (resample.index) {
    index = memory->Load(*resample.index, kOrder);
  } else if (resample.is_max) {
    x = memory->Load(*resample.x, kOrder);
    y = memory->Load(*resample.y, kOrder);
  }
  std::vector<double> dx(static_cast<size_t>(resample.large.elements()), 0.0);
  ForEachWindow(resample, [&](int64_t plane, int64_t p, int64_t q, size_t element) {
    const auto gradient = static_cast<double>(dy[element]);
    const auto count = static_cast<double>(CountOf(resample, plane, p, q));
    bool is_found = false;
    ForEachInWindow(resample, plane, p, q, [&](size_t place, int64_t within) {
      if (!resample.is_max) {
        dx[place] += gradient / count;
        return;
      }
      // Among equal elements, the first one counts.
      const bool is_largest =
          index.empty() ? x[place] == y[element] : index[element] == static_cast<float>(within);
      if (is_largest && !is_found) {
        dx[place] += gradient;
        is_found = true;
      }
    });
  });
  memory->Store(resample.large, kOrder, std::vector<float>(dx.begin(), dx.end()));
}

cudnnStatus_t ReadSettings(const Descriptor& settings, Resample* resample) {
  TY_CUDNN_TRY(ExpectFloatMath(settings.Int(CUDNN_ATTR_RESAMPLE_COMP_TYPE, 0)));
  const int64_t mode = settings.Int(CUDNN_ATTR_RESAMPLE_MODE, -1);
  resample->is_max = mode == CUDNN_RESAMPLE_MAXPOOL;
  resample->counts_padding = mode == CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING;
  if (!resample->is_max && !resample->counts_padding &&
      mode != CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED, absl::StrCat("resample mode ", mode));
  }
  const int64_t padding_mode = settings.Int(CUDNN_ATTR_RESAMPLE_PADDING_MODE,
                                            resample->is_max ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD);
  if (padding_mode != (resample->is_max ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD)) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED, absl::StrCat("resample padding ", padding_mode));
  }
  resample->window = settings.Ints(CUDNN_ATTR_RESAMPLE_WINDOW_DIMS);
  resample->stride = settings.Ints(CUDNN_ATTR_RESAMPLE_STRIDES);
  resample->padding = settings.Ints(CUDNN_ATTR_RESAMPLE_PRE_PADDINGS);
  const auto post = settings.Ints(CUDNN_ATTR_RESAMPLE_POST_PADDINGS);
  const auto& large = resample->large.dims;
  const auto& small = resample->small.dims;
  bool fits = settings.Int(CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, 0) == 2 && large.size() == 4 &&
              small.size() == 4 && resample->window.size() == 2 && resample->stride.size() == 2 &&
              resample->padding.size() == 2 && post.size() == 2;
  fits = fits && large[0] == small[0] && large[1] == small[1];
  for (size_t i = 0; fits && i < 2; ++i) {
    const int64_t room = large[2 + i] + resample->padding[i] + post[i] - resample->window[i];
    fits = resample->stride[i] >= 1 && resample->window[i] >= 1 && room >= 0 &&
           resample->padding[i] < resample->window[i] &&
           small[2 + i] == room / resample->stride[i] + 1;
  }
  return ExpectShape(
      fits, absl::StrCat("resample: ", ShapeText(large), " and ", ShapeText(small), " do not fit"));
}

}  // namespace

cudnnStatus_t CompileResample(const Descriptor& descriptor, Operation* operation) {
  Resample resample;
  if (descriptor.type == CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR) {
    resample.large = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC);
    resample.small = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC);
    resample.index = FindTensor(descriptor, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC);
    TY_CUDNN_TRY(
        ReadSettings(*descriptor.Child(CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC), &resample));
    operation->inputs = {resample.large};
    operation->outputs = {resample.small};
    if (resample.index) {
      TY_CUDNN_TRY(ExpectShape(resample.is_max && resample.index->dims == resample.small.dims,
                               "resample: an index belongs to each largest element"));
      operation->outputs.push_back(*resample.index);
    }
    operation->run = [resample = std::make_shared<const Resample>(resample)](Memory* memory) {
      RunForward(*resample, memory);
    };
    return CUDNN_STATUS_SUCCESS;
  }
  resample.large = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC);
  resample.small = *FindTensor(descriptor, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC);
  resample.index = FindTensor(descriptor, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC);
  resample.x = FindTensor(descriptor, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_XDESC);
  resample.y = FindTensor(descriptor, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_YDESC);
  TY_CUDNN_TRY(ReadSettings(*descriptor.Child(CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC), &resample));
  if (resample.is_max && !resample.index && !(resample.x && resample.y)) {
    return Fail(CUDNN_STATUS_BAD_PARAM,
                "resample: the gradient of the largest needs x and y, or indices");
  }
  operation->inputs = {resample.small};
  for (const auto* spec : {&resample.index, &resample.x, &resample.y}) {
    if (*spec) {
      const auto& like = spec == &resample.x ? resample.large.dims : resample.small.dims;
      TY_CUDNN_TRY(ExpectShape((*spec)->dims == like, "resample: x, y or indices do not fit"));
      operation->inputs.push_back(**spec);
    }
  }
  operation->outputs = {resample.large};
  operation->run = [resample = std::make_shared<const Resample>(resample)](Memory* memory) {
    RunBackward(*resample, memory);
  };
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace trainyard::cuda_on_cpu::cudnn
