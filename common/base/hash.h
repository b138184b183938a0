// The hash of content: what a checkpoint's files and a data set are recognised by. For damage and
// mix-ups, not against forgery.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace trainyard {

// XXH3, 128 bits, over pieces. Not thread-safe.
class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();

  void Update(absl::string_view bytes);
  // "xxh3-128:<32 hex digits>" of what has come so far.
  std::string Text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainyard
