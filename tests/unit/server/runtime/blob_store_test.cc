// Tests that blobs are stored completely, only once each, and are found by their hash.
#include "server/runtime/blob_store.h"

#include <gtest/gtest.h>

#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/hash.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::runtime {
namespace {

class BlobStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { blobs_ = *BlobStore::Open(dir_.path()); }

  core::CheckpointFile File(const std::string& content, const std::string& name = "model") {
    return {name, static_cast<int64_t>(content.size()), ContentHash(content)};
  }
  // Uploads the content and seals it.
  std::shared_ptr<const void> Put(const std::string& content) {
    EXPECT_TRUE(blobs_->Append(upload_, File(content), 0, content).ok());
    auto pin = blobs_->Seal(upload_, {File(content)});
    EXPECT_TRUE(pin.ok()) << pin.status();
    return *pin;
  }

  testing::TempDir dir_;
  std::unique_ptr<BlobStore> blobs_;
  const UploadId upload_ = {{JobId{1}, 2}, 600};
  const std::function<bool(const std::string&)> never_ = [](const std::string&) { return false; };
};

TEST_F(BlobStoreTest, UploadsByOffsetAndReadsByHash) {
  const auto file = File("hello world");
  EXPECT_EQ(*blobs_->Append(upload_, file, 0, ""), 0);
  EXPECT_EQ(*blobs_->Append(upload_, file, 0, "hello "), 6);
  EXPECT_EQ(*blobs_->Append(upload_, file, 0, "hello "), 6);
  EXPECT_EQ(*blobs_->Append(upload_, file, 4, "o world"), 11);
  ASSERT_TRUE(blobs_->Seal(upload_, {file}).ok());
  EXPECT_EQ(*blobs_->Read(file.hash, 6, 100), "world");
}

TEST_F(BlobStoreTest, AGapIsRefused) {
  const auto refused = blobs_->Append(upload_, File("hello"), 2, "llo");
  EXPECT_EQ(ErrorReason(refused.status()), "OFFSET_MISMATCH");
  EXPECT_EQ(GetErrorMetadata(refused.status()).at(error::kExpectedOffset), "0");
}

TEST_F(BlobStoreTest, BytesPastTheSizeAndBadHashesAreRefused) {
  auto file = File("hello");
  EXPECT_TRUE(absl::IsInvalidArgument(blobs_->Append(upload_, file, 3, "lo!").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(blobs_->Append(upload_, file, INT64_MAX, "lo!").status()));
  file.hash = "../../x";
  EXPECT_TRUE(absl::IsInvalidArgument(blobs_->Append(upload_, file, 0, "h").status()));
}

TEST_F(BlobStoreTest, AFileThatIsNotCompleteCannotBeSealed) {
  const auto file = File("hello");
  ASSERT_TRUE(blobs_->Append(upload_, file, 0, "hel").ok());
  const auto sealed = blobs_->Seal(upload_, {file});
  EXPECT_EQ(ErrorReason(sealed.status()), "OFFSET_MISMATCH");
  EXPECT_EQ(*blobs_->Append(upload_, file, 3, "lo"), 5);
  EXPECT_TRUE(blobs_->Seal(upload_, {file}).ok());
}

TEST_F(BlobStoreTest, WrongBytesAreDroppedAndComeAgain) {
  const auto file = File("hello");
  ASSERT_TRUE(blobs_->Append(upload_, file, 0, "hellO").ok());
  EXPECT_EQ(ErrorReason(blobs_->Seal(upload_, {file}).status()), "CORRUPT_FILE");
  EXPECT_EQ(*blobs_->Append(upload_, file, 0, ""), 0);
  EXPECT_EQ(*blobs_->Append(upload_, file, 0, "hello"), 5);
  EXPECT_TRUE(blobs_->Seal(upload_, {file}).ok());
}

TEST_F(BlobStoreTest, ContentThatIsThereNeedNotComeAgain) {
  Put("hello");
  const UploadId other = {{JobId{9}, 1}, 5};
  EXPECT_EQ(*blobs_->Append(other, File("hello", "other"), 0, ""), 5);
  EXPECT_TRUE(blobs_->Seal(other, {File("hello", "other")}).ok());
}

TEST_F(BlobStoreTest, AnEmptyFileIsAFile) {
  const auto file = File("");
  ASSERT_TRUE(blobs_->Seal(upload_, {file}).ok());
  EXPECT_EQ(*blobs_->Read(file.hash, 0, 10), "");
}

TEST_F(BlobStoreTest, RemovesOnlyWhatNothingNames) {
  auto pin = Put("hello");
  const std::string hash = File("hello").hash;
  // It is pinned, since its row is about to be written.
  EXPECT_EQ(blobs_->RemoveUnreferenced({hash}, never_), 0);
  pin.reset();
  EXPECT_EQ(blobs_->RemoveUnreferenced({hash}, [](const std::string&) { return true; }), 0);
  EXPECT_EQ(blobs_->RemoveUnreferenced({File("other").hash}, never_), 0);
  EXPECT_EQ(blobs_->RemoveUnreferenced({hash}, never_), 1);
  EXPECT_TRUE(absl::IsNotFound(blobs_->Read(hash, 0, 10).status()));
}

TEST_F(BlobStoreTest, MovesOnlyWhatNothingNames) {
  auto pin = Put("hello");
  const std::string hash = File("hello").hash;
  const std::string folder = dir_.File("aside");
  EXPECT_EQ(blobs_->SetUnreferencedAside(folder, never_), 0);  // it is pinned
  pin.reset();
  EXPECT_EQ(blobs_->SetUnreferencedAside(folder, [](const std::string&) { return true; }), 0);
  EXPECT_FALSE(FileExists(folder));
  EXPECT_EQ(blobs_->SetUnreferencedAside(folder, never_), 1);
  EXPECT_TRUE(absl::IsNotFound(blobs_->Read(hash, 0, 10).status()));
  const std::string digits = *HashDigits(hash);
  EXPECT_EQ(*ReadFile(JoinPath(JoinPath(folder, digits.substr(0, 2)), digits)), "hello");
  EXPECT_EQ(blobs_->SetUnreferencedAside(folder, never_), 0);
}

TEST_F(BlobStoreTest, UploadsOfTheDeadGo) {
  const auto file = File("hello");
  ASSERT_TRUE(blobs_->Append(upload_, file, 0, "hel").ok());
  blobs_->RemoveUploads([](AttemptId) { return true; });
  EXPECT_EQ(*blobs_->Append(upload_, file, 0, ""), 3);
  blobs_->RemoveUploads([this](AttemptId id) { return id != upload_.attempt; });
  EXPECT_EQ(*blobs_->Append(upload_, file, 0, ""), 0);
}

}  // namespace
}  // namespace trainyard::runtime
