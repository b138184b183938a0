// Damages the files of a committed checkpoint on the server's disk in every bit, at every length
// and by exchanging them. The server always notices, and takes the mark away once they are whole.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "common/rpc/channel.h"
#include "tests/faults/report.h"
#include "tests/faults/script.h"
#include "tests/faults/shim.h"

namespace trainyard::testing {
namespace {

// Shares no factor with 8, so that samples lie at every place in a byte.
constexpr size_t kSampledBits = 1009;
constexpr size_t kSampledLengths = 499;

class Bits : public ::testing::Test {
 protected:
  // Returns what the server says of the checkpoint after it has hashed its files.
  std::string Damage() {
    const auto stub = v1::CheckpointService::NewStub(script_.yard().channel());
    grpc::ClientContext context;
    rpc::SetTimeout(context, kPatience);
    v1::VerifyCheckpointRequest request;
    request.set_name(Script::kCheckpoint);
    v1::Checkpoint checkpoint;
    const grpc::Status status = stub->VerifyCheckpoint(&context, request, &checkpoint);
    EXPECT_TRUE(status.ok()) << status.error_message();
    files_.assign(checkpoint.files().begin(), checkpoint.files().end());
    return checkpoint.damage();
  }

  std::string PathOf(const v1::CheckpointFile& file) {
    const std::string digits = *HashDigits(file.hash());
    return JoinPath(script_.yard().server_state_dir(),
                    absl::StrCat("blobs/", digits.substr(0, 2), "/", digits));
  }

  // Writes the content over the file, and looks whether the server notices.
  void ExpectNoticed(const std::string& path, const std::string& content, const char* kind) {
    ASSERT_TRUE(ReplaceFile(path, content).ok());
    const bool is_noticed = !Damage().empty();
    EXPECT_TRUE(is_noticed) << path;
    row_.Count(kind, 1);
    row_.Count("missed", is_noticed ? 0 : 1);
  }

  FaultRow row_{{.fault = "a checkpoint on the server is damaged",
                 .injection = "bits flipped, files cut and exchanged",
                 .expectation = "always noticed; whole again once the bytes are back"}};
  Shim shim_;
  Script script_{shim_, row_};
  std::vector<v1::CheckpointFile> files_;
};

TEST_F(Bits, AreAllNoticed) {
  SKIP_WITHOUT_SHIM();
  script_.Start({});
  script_.Run();
  ASSERT_EQ(Damage(), "");
  const std::vector<v1::CheckpointFile> files = files_;
  const auto stride = [](size_t sampled) { return IsLongLane() ? size_t{1} : sampled; };
  for (const v1::CheckpointFile& file : files) {
    const std::string path = PathOf(file);
    const std::string whole = *ReadFile(path);
    for (size_t bit = 0; bit < 8 * whole.size(); bit += stride(kSampledBits)) {
      std::string damaged = whole;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      ExpectNoticed(path, damaged, "bits flipped");
    }
    for (size_t length = 0; length < whole.size(); length += stride(kSampledLengths)) {
      ExpectNoticed(path, whole.substr(0, length), "cuts");
    }
    for (const v1::CheckpointFile& other : files) {
      if (other.name() == file.name()) continue;
      ExpectNoticed(path, *ReadFile(PathOf(other)), "exchanges");
    }
    ASSERT_EQ(unlink(path.c_str()), 0);
    EXPECT_NE(Damage(), "");
    row_.Count("deletions", 1);
    ASSERT_TRUE(ReplaceFile(path, whole).ok());
    EXPECT_EQ(Damage(), "") << "it is whole again";
    if (HasFailure()) return;
  }
  script_.Verify();
  if (!HasFailure()) row_.Survived();
}

}  // namespace
}  // namespace trainyard::testing
