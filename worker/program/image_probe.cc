// Asks podman for the digest of the manifest, and sha256sum for that of a file.
#include "worker/program/image_probe.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace trainyard::program {
namespace {

// A large image takes minutes to fetch or to read. What takes longer is left out.
constexpr absl::Duration kImageFor = absl::Minutes(10);
constexpr absl::Duration kImageRetry = absl::Seconds(5);
constexpr size_t kDigestDigits = 64;

std::vector<std::string> OwnVariables() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  return variables;
}

}  // namespace

ImageQuestion QuestionAbout(const run_dir::Isolation& isolation, const Image& image) {
  // Charliecloud keeps images that it knows by name as folders, too.
  const bool is_folder =
      image.kind == Image::Kind::kFolder ||
      (image.kind == Image::Kind::kReference && isolation.runtime == "charliecloud");
  if (is_folder) return {.answer = kNoImageDigest};
  if (image.kind == Image::Kind::kFile) return {.words = {"sha256sum"}, .input = image.name};
  if (isolation.runtime != "podman") return {};
  return {.words = {isolation.program, "image", "inspect", "--format", "{{.Digest}}", image.name},
          .is_fetched = true};
}

std::string DigestIn(absl::string_view answer) {
  absl::ConsumePrefix(&answer, "sha256:");
  const absl::string_view digits = answer.substr(0, answer.find_first_of(" \n"));
  const bool is_digest =
      digits.size() == kDigestDigits && std::all_of(digits.begin(), digits.end(), [](char c) {
        return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
      });
  return is_digest ? absl::StrCat("sha256:", digits) : "";
}

ImageProbe::ImageProbe(ImageQuestion question, Clock& clock)
    : question_(std::move(question)),
      clock_(clock),
      start_(clock.Uptime()),
      is_last_(!question_.is_fetched),
      digest_(question_.answer),
      is_done_(question_.words.empty()) {}

void ImageProbe::Look() {
  if (is_done_) return;
  const absl::Duration now = clock_.Uptime() - start_;
  if (now > kImageFor) {
    asked_.End();
    is_done_ = true;
  } else if (!asked_.is_running()) {
    if (now < due_) return;
    is_done_ = !asked_.Start(question_.words, OwnVariables(), question_.input);
  } else if (asked_.Take()) {
    asked_.End();
    digest_ = DigestIn(asked_.answer());
    is_done_ = is_last_ || !digest_.empty();
    due_ = now + kImageRetry;
  }
}

void ImageProbe::Finish() {
  is_last_ = true;
  due_ = absl::ZeroDuration();
}

}  // namespace trainyard::program
