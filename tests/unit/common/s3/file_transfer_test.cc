#include "common/s3/file_transfer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/s3/sign.h"
#include "tests/testing/s3/fake_s3.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::s3 {
namespace {

using testing::FakeS3;
using ::testing::HasSubstr;

// Files of three parts, of which the last one is short.
constexpr TransferOptions kSmall{
    .multipart_from = kPartBytesMin, .part_bytes = kPartBytesMin, .parallel = 3};

class FileTransferTest : public ::testing::Test {
 protected:
  FileTransferTest() {
    while (content_.size() < 11'000'000) {
      absl::StrAppend(&content_, content_.size(), " ", content_.size() * 31, "\n");
    }
    path_ = dir_.Write("file", content_);
  }
  int64_t size() const { return static_cast<int64_t>(content_.size()); }

  FakeS3 fake_;
  std::unique_ptr<Client> client_ =
      *Client::Create(fake_.ClientOptions(), *Clock::Real(), *Rng::Real());
  testing::TempDir dir_;
  std::string content_;
  std::string path_;
};

TEST_F(FileTransferTest, ALargeFileGoesInPartsAtTheSameTime) {
  const absl::Status status = UploadFile(*client_, "k", path_, size(), {}, kSmall);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(fake_.Objects()["k"] == content_);
  EXPECT_EQ(fake_.CountRequests("partNumber="), 3);
  EXPECT_EQ(fake_.OpenUploads(), 0);
}

TEST_F(FileTransferTest, ASmallFileGoesAtOnce) {
  ASSERT_TRUE(UploadFile(*client_, "k", path_, 100, {.is_new = true}, kSmall).ok());
  EXPECT_EQ(fake_.Objects()["k"], content_.substr(0, 100));
  EXPECT_EQ(fake_.Requests().size(), 1u);
  EXPECT_TRUE(absl::IsAborted(UploadFile(*client_, "k", path_, 100, {.is_new = true}, kSmall)));
}

TEST_F(FileTransferTest, PartsAreSentAgainAfterFailures) {
  fake_.Inject(FakeS3::Fault::kSlowDown, 1, "PUT");
  fake_.Inject(FakeS3::Fault::kClose, 1, "PUT");
  fake_.Inject(FakeS3::Fault::kLoseAnswer, 1, "PUT");
  const absl::Status status = UploadFile(*client_, "k", path_, size(), {}, kSmall);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(fake_.Objects()["k"] == content_);
}

TEST_F(FileTransferTest, ACompletionWhoseAnswerWasLostIsASuccess) {
  fake_.Inject(FakeS3::Fault::kNothing, 1, "POST");  // it begins the upload
  fake_.Inject(FakeS3::Fault::kErrorInside, 1, "POST");
  fake_.Inject(FakeS3::Fault::kLoseAnswer, 1, "POST");
  const absl::Status status = UploadFile(*client_, "k", path_, size(), {}, kSmall);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(fake_.Objects()["k"] == content_);
  EXPECT_EQ(fake_.CountRequests("POST"), 4);
}

TEST_F(FileTransferTest, AnUploadThatFailsIsAborted) {
  fake_.Inject(FakeS3::Fault::kDenied, 1, "PUT");
  const absl::Status status = UploadFile(*client_, "k", path_, size(), {}, kSmall);
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(fake_.OpenUploads(), 0);
  EXPECT_EQ(fake_.Keys().size(), 0u);
}

TEST_F(FileTransferTest, AnUploadThatIsCancelledIsAborted) {
  fake_.Inject(FakeS3::Fault::kHang, 3, "PUT");
  absl::Status status;
  std::thread thread([&] { status = UploadFile(*client_, "k", path_, size(), {}, kSmall); });
  EXPECT_TRUE(testing::WaitUntil([&] { return fake_.CountRequests("partNumber=") == 3; }));
  EXPECT_EQ(fake_.ParallelMax(), 3);
  client_->Cancel();
  thread.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(fake_.OpenUploads(), 0);
}

TEST_F(FileTransferTest, APartWithAnotherEtagFailsTheUpload) {
  fake_.Inject(FakeS3::Fault::kWrongEtag, 1, "PUT");
  const absl::Status status = UploadFile(*client_, "k", path_, size(), {}, kSmall);
  EXPECT_EQ(ErrorReason(status), "S3_REFUSED") << status;
  EXPECT_THAT(status.message(), HasSubstr("InvalidPart"));
  EXPECT_EQ(fake_.OpenUploads(), 0);
}

TEST_F(FileTransferTest, AFileThatBecameShorterIsNotSent) {
  EXPECT_TRUE(absl::IsDataLoss(UploadFile(*client_, "k", path_, size() + 1, {}, kSmall)));
  EXPECT_TRUE(absl::IsDataLoss(UploadFile(*client_, "k", path_, size() + 1)));
  EXPECT_EQ(fake_.OpenUploads(), 0);
  EXPECT_EQ(fake_.Keys().size(), 0u);
}

TEST_F(FileTransferTest, AFileComesBackAsItWas) {
  fake_.Write("k", content_);
  fake_.Inject(FakeS3::Fault::kCut, 2, "GET");
  const std::string to = dir_.File("copy");
  const absl::Status status = DownloadFile(*client_, "k", to, size(), HexSha256(content_));
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(*ReadFile(to) == content_);
}

TEST_F(FileTransferTest, WrongBytesGetNoName) {
  fake_.Write("k", content_);
  fake_.Inject(FakeS3::Fault::kWrongBytes, 1, "GET");
  const std::string to = dir_.File("copy");
  EXPECT_TRUE(absl::IsDataLoss(DownloadFile(*client_, "k", to, size(), HexSha256(content_))));
  EXPECT_TRUE(absl::IsDataLoss(DownloadFile(*client_, "k", to, size() - 1, HexSha256(content_))));
  EXPECT_FALSE(FileExists(to));
  EXPECT_FALSE(FileExists(to + ".part"));
}

}  // namespace
}  // namespace trainyard::s3
