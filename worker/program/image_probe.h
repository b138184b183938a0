// Finds the digest of the image in which a program runs. A tag such as python:3.12 may lead to
// another image tomorrow, and then a clone does not run in what its original ran in.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "worker/program/container.h"
#include "worker/program/question.h"
#include "worker/run_dir/isolation.h"

namespace trainyard::program {

// This stands in place of the digest of an image that is a folder.
inline constexpr char kNoImageDigest[] = "none: the image is a folder";

// Says how a digest is found. It is empty where no runtime can tell it.
struct ImageQuestion {
  std::vector<std::string> words = {};  // print the digest, or are empty
  std::string input = "/dev/null";      // their stdin
  std::string answer = {};              // is not empty if nothing needs to be asked
  bool is_fetched = false;              // the runtime may have to fetch the image first
};

ImageQuestion QuestionAbout(const run_dir::Isolation& isolation, const Image& image);
// Returns "sha256:<64 hex digits>" if the answer begins with such a digest, with or without the
// name of the algorithm, else an empty text.
std::string DigestIn(absl::string_view answer);

// It asks for a limited time, and is not thread-safe. Borrows `clock`.
class ImageProbe {
 public:
  ImageProbe(ImageQuestion question, Clock& clock);

  // Takes the next step; it never blocks.
  void Look();
  // The program has ended, so its image is there: the next answer is the last one, and is not put
  // off.
  void Finish();
  bool is_done() const { return is_done_; }
  // Can be read once there is a next step, or is -1.
  int fd() const { return asked_.fd(); }
  // Returns the digest, or an empty text.
  const std::string& digest() const { return digest_; }

 private:
  const ImageQuestion question_;
  Clock& clock_;
  const absl::Duration start_;
  absl::Duration due_;  // when it asks next, since the start
  bool is_last_;        // no further question follows the next answer
  Question asked_;
  std::string digest_;
  bool is_done_ = false;
};

}  // namespace trainyard::program
