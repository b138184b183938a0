#include "common/base/hash.h"

#include <xxhash.h>

#include "absl/strings/str_format.h"
#include "common/base/check.h"

namespace trainyard {

struct ContentHasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) {
  TY_CHECK(state_->xxh != nullptr && XXH3_128bits_reset(state_->xxh) == XXH_OK);
}
ContentHasher::~ContentHasher() = default;

void ContentHasher::Update(absl::string_view bytes) {
  TY_CHECK(XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size()) == XXH_OK);
}

std::string ContentHasher::Text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return absl::StrFormat("xxh3-128:%016x%016x", hash.high64, hash.low64);
}

}  // namespace trainyard
