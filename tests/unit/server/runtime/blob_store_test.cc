// Tests that blobs are stored completely, only once each, and are found by their hash.
#include "server/runtime/blob_store.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
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
  std::string BlobPath(const core::CheckpointFile& file) {
    const std::string digits = *HashDigits(file.hash);
    return dir_.File(absl::StrCat("blobs/", digits.substr(0, 2), "/", digits));
  }
  // Writes other bytes over those of the blob.
  void Damage(const core::CheckpointFile& file, const std::string& content) {
    ASSERT_TRUE(ReplaceFile(BlobPath(file), content).ok());
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

TEST_F(BlobStoreTest, AFileThatCannotFitIsRefusedBeforeItTakesSpace) {
  auto file = File("hello");
  file.size = BlobStore::kFileBytesMax;
  const auto refused = blobs_->Append(upload_, file, 0, "h");
  EXPECT_EQ(ErrorReason(refused.status()), "DISK_FULL") << refused.status();
  EXPECT_TRUE(ListDirectory(dir_.File("uploads"))->empty());
}

TEST_F(BlobStoreTest, AnAttemptHasALimitOfUploadsThatAreNotCommitted) {
  for (int i = 0; i < BlobStore::kUploadsMax; ++i) {
    ASSERT_TRUE(blobs_->Append({upload_.attempt, i}, File("hello"), 0, "hel").ok());
  }
  const UploadId next = {upload_.attempt, BlobStore::kUploadsMax};
  const auto refused = blobs_->Append(next, File("hello"), 0, "hel");
  EXPECT_EQ(ErrorReason(refused.status()), "TOO_MANY_UPLOADS") << refused.status();
  EXPECT_TRUE(blobs_->Append({upload_.attempt, 0}, File("hello"), 3, "lo").ok());
  EXPECT_TRUE(blobs_->Append({{JobId{1}, 21}, 0}, File("hello"), 0, "hel").ok())
      << "another attempt has a limit of its own";
  ASSERT_TRUE(blobs_->Seal({upload_.attempt, 0}, {File("hello")}).ok());
  EXPECT_TRUE(blobs_->Append(next, File("hallo"), 0, "hal").ok());
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

TEST_F(BlobStoreTest, ADamagedBlobIsSetAsideAndComesAnew) {
  Put("hello");
  const auto file = File("hello");
  Damage(file, "hellO");
  const UploadId other = {{JobId{9}, 1}, 5};
  EXPECT_EQ(*blobs_->Append(other, file, 0, ""), 0) << "it is not there";
  EXPECT_EQ(*ReadFile(JoinPath(dir_.File("damaged"), *HashDigits(file.hash))), "hellO");
  EXPECT_EQ(*blobs_->Append(other, file, 0, "hello"), 5);
  ASSERT_TRUE(blobs_->Seal(other, {file}).ok());
  EXPECT_EQ(*blobs_->Read(file.hash, 0, 10), "hello");
  EXPECT_EQ(*blobs_->FindDamage({file}), "");
}

TEST_F(BlobStoreTest, AnUploadHashesWhatIsThereOnlyOnce) {
  Put("hello");
  const auto file = File("hello");
  const UploadId other = {{JobId{9}, 1}, 5};
  ASSERT_EQ(*blobs_->Append(other, file, 0, ""), 5);
  // The call was repeated, because its answer took too long. Whatever happens to the blob now is
  // found by those who read it.
  Damage(file, "hellO");
  EXPECT_EQ(*blobs_->Append(other, file, 0, ""), 5);
  blobs_->RemoveUploads([&other](AttemptId id) { return id != other.attempt; });
  EXPECT_EQ(*blobs_->Append(other, file, 0, ""), 0) << "the upload was forgotten";
}

TEST_F(BlobStoreTest, ChunksAreNotHashed) {
  Put("hello");
  const auto file = File("hello");
  Damage(file, "hellO");
  EXPECT_EQ(*blobs_->Append(upload_, file, 2, "llo"), 5);
}

TEST_F(BlobStoreTest, AWrongSizeDoesNotCondemnABlob) {
  Put("hello");
  auto file = File("hello");
  file.size = 4;
  EXPECT_EQ(*blobs_->Append(upload_, file, 0, ""), 0);
  EXPECT_EQ(*blobs_->Append(upload_, file, 0, "hell"), 4);
  EXPECT_EQ(ErrorReason(blobs_->Seal(upload_, {file}).status()), "CORRUPT_FILE");
  EXPECT_EQ(*blobs_->Read(file.hash, 0, 10), "hello");
}

TEST_F(BlobStoreTest, ATruncatedBlobIsReplaced) {
  Put("hello");
  const auto file = File("hello");
  Damage(file, "hel");
  EXPECT_EQ(*blobs_->Append(upload_, file, 0, "hello"), 5);
  ASSERT_TRUE(blobs_->Seal(upload_, {file}).ok());
  EXPECT_EQ(*blobs_->Read(file.hash, 0, 10), "hello");
}

TEST_F(BlobStoreTest, DamageIsNamedWithItsFile) {
  Put("hello");
  const auto file = File("hello");
  const auto damage = [&] { return *blobs_->FindDamage({file}); };
  EXPECT_EQ(damage(), "");
  Damage(file, "hellO");
  EXPECT_EQ(damage(),
            absl::StrCat("model has the hash ", ContentHash("hellO"), "; expected ", file.hash));
  Damage(file, "hel");
  EXPECT_EQ(damage(), "model has 3 bytes; expected 5");
  ASSERT_EQ(unlink(BlobPath(file).c_str()), 0);
  EXPECT_EQ(damage(), "model is missing");
  // A folder can be opened, and cannot be read: like a disk that fails.
  ASSERT_EQ(mkdir(BlobPath(file).c_str(), 0700), 0);
  core::CheckpointFile folder = file;
  folder.size = *FileSize(BlobPath(file));
  EXPECT_NE(blobs_->FindDamage({folder})->find("model: cannot read"), std::string::npos);
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
