// libgit2 compares.
#include "client/code/text_diff.h"

#include <git2.h>

namespace trainyard::code {

std::string TextDiff(const std::string& path, absl::string_view before, absl::string_view after) {
  git_libgit2_init();
  git_patch* patch = nullptr;
  git_buf text = GIT_BUF_INIT;
  std::string diff;
  if (git_patch_from_buffers(&patch, before.data(), before.size(), path.c_str(), after.data(),
                             after.size(), path.c_str(), nullptr) == 0 &&
      patch != nullptr && git_patch_to_buf(&text, patch) == 0) {
    diff.assign(text.ptr, text.size);
  }
  git_buf_dispose(&text);
  git_patch_free(patch);
  git_libgit2_shutdown();
  return diff;
}

}  // namespace trainyard::code
