// A hostile stream may ask for much memory and unfold to any size, so both are bounded here.
#include "common/bundle/zstd.h"

#include <zstd.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bundle_errors.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"

namespace trainyard::bundle {
namespace {

constexpr size_t kZstdBlock = size_t{128} << 10;
// Weights hardly shrink at any level, and text does at the lowest.
constexpr int kZstdLevel = 3;
// The memory of a stream is 8 MiB at most, as levels up to 19 need it.
constexpr int kWindowLogMax = 23;

}  // namespace

struct Compressor::State {
  tar::Sink sink;
  ZSTD_CCtx* context = nullptr;
  std::array<char, kZstdBlock> block;

  ~State() { ZSTD_freeCCtx(context); }

  absl::Status Feed(absl::string_view bytes, ZSTD_EndDirective end) {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    while (true) {
      ZSTD_outBuffer out{block.data(), block.size(), 0};
      const size_t left = ZSTD_compressStream2(context, &out, &in, end);
      TY_CHECK(ZSTD_isError(left) == 0);
      if (out.pos > 0) TY_RETURN_IF_ERROR(sink({block.data(), out.pos}));
      const bool is_done = end == ZSTD_e_end ? left == 0 : in.pos == in.size;
      if (is_done) return absl::OkStatus();
    }
  }
};

Compressor::Compressor(tar::Sink sink) : state_(std::make_unique<State>()) {
  state_->sink = std::move(sink);
  state_->context = ZSTD_createCCtx();
  TY_CHECK(state_->context != nullptr);
  ZSTD_CCtx_setParameter(state_->context, ZSTD_c_compressionLevel, kZstdLevel);
  ZSTD_CCtx_setParameter(state_->context, ZSTD_c_checksumFlag, 1);
}
Compressor::~Compressor() = default;

absl::Status Compressor::Write(absl::string_view bytes) {
  return state_->Feed(bytes, ZSTD_e_continue);
}

absl::Status Compressor::Finish() {
  return state_->Feed("", ZSTD_e_end);
}

struct Decompressor::State {
  tar::Source source;
  std::string name;
  int64_t allowed = 0;
  int64_t given = 0;
  ZSTD_DCtx* context = nullptr;
  absl::string_view in;  // what is left of the last block of the source
  bool is_at_end = false;
  bool is_between_frames = true;
  std::array<char, kZstdBlock> block;

  ~State() { ZSTD_freeDCtx(context); }
};

Decompressor::Decompressor(tar::Source source, std::string name, int64_t allowed)
    : state_(std::make_unique<State>()) {
  state_->source = std::move(source);
  state_->name = std::move(name);
  state_->allowed = allowed;
  state_->context = ZSTD_createDCtx();
  TY_CHECK(state_->context != nullptr);
  ZSTD_DCtx_setParameter(state_->context, ZSTD_d_windowLogMax, kWindowLogMax);
}
Decompressor::~Decompressor() = default;

void Decompressor::Allow(int64_t bytes) {
  state_->allowed = bytes;
}

absl::StatusOr<absl::string_view> Decompressor::Next() {
  State& state = *state_;
  while (true) {
    if (state.in.empty() && !state.is_at_end) {
      TY_ASSIGN_OR_RETURN(state.in, state.source());
      state.is_at_end = state.in.empty();
    }
    ZSTD_inBuffer in{state.in.data(), state.in.size(), 0};
    ZSTD_outBuffer out{state.block.data(), state.block.size(), 0};
    // At the end of the source, only what is still inside of the context can come.
    if (state.is_at_end && state.is_between_frames) return absl::string_view();
    const size_t left = ZSTD_decompressStream(state.context, &out, &in);
    if (ZSTD_isError(left) != 0) {
      return error::CorruptFile(state.name, absl::StrCat("zstd: ", ZSTD_getErrorName(left)));
    }
    state.in.remove_prefix(in.pos);
    state.is_between_frames = left == 0;
    if (out.pos > 0) {
      state.given += static_cast<int64_t>(out.pos);
      if (state.given > state.allowed) {
        return error::BundleTooLarge(state.name,
                                     absl::StrCat("it unfolds to more than the ", state.allowed,
                                                  " bytes that its list of entries allows"));
      }
      return absl::string_view(state.block.data(), out.pos);
    }
    if (state.is_at_end && !state.is_between_frames) {
      return error::CorruptFile(state.name, "it is cut off");
    }
  }
}

}  // namespace trainyard::bundle
