// Tests that code is kept whole by its digest, for as long as somebody needs it.
#include "server/runtime/code_store.h"

#include <gtest/gtest.h>

#include "common/base/code_errors.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/tls/digest.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::runtime {
namespace {

class CodeStoreTest : public ::testing::Test {
 protected:
  void Open() { store_ = *CodeStore::Open(dir_.path(), clock_); }
  void SetUp() override { Open(); }
  absl::StatusOr<int64_t> Append(const std::string& user, int64_t offset, const std::string& data) {
    return store_->Append(user, digest_, static_cast<int64_t>(content_.size()), offset, data);
  }
  static bool Nothing(const std::string&) { return false; }

  const std::string content_ = "0123456789";
  const std::string digest_ = tls::Sha256Text(content_);
  testing::TempDir dir_;
  testing::ManualClock clock_;
  std::unique_ptr<CodeStore> store_;
};

TEST_F(CodeStoreTest, AnUploadGoesOnWhereItStopped) {
  EXPECT_EQ(*Append("anna", 0, "01234"), 5);
  EXPECT_EQ(store_->SizeOf(digest_), -1) << "what is not whole is not there";
  EXPECT_EQ(ErrorReason(Append("anna", 7, "789").status()), "OFFSET_MISMATCH");
  EXPECT_EQ(*Append("anna", 3, "34567"), 8);
  EXPECT_EQ(*Append("anna", 8, "89"), 10);
  EXPECT_EQ(store_->SizeOf(digest_), 10);
  EXPECT_EQ(*store_->Read(digest_, 4, 3), "456");
  EXPECT_EQ(*store_->Read(digest_, 10, 3), "");
  EXPECT_EQ(*Append("anna", 0, "01"), 10) << "whoever has it need not send it again";
}

TEST_F(CodeStoreTest, OtherBytesThanTheDigestSaysAreRefused) {
  EXPECT_TRUE(absl::IsDataLoss(Append("anna", 0, "0123456788").status()));
  EXPECT_EQ(store_->SizeOf(digest_), -1);
  EXPECT_EQ(*Append("anna", 0, content_), 10) << "and can be sent anew";
  EXPECT_FALSE(store_->Append("anna", "sha256:../../x", 1, 0, "x").ok());
  EXPECT_FALSE(store_->Append("anna", digest_, 5, 0, content_).ok());
  EXPECT_EQ(ErrorReason(store_->Append("anna", digest_, CodeStore::kBytesMax + 1, 0, "x").status()),
            error::kCodeTooLarge);
}

TEST_F(CodeStoreTest, ToKnowADigestIsNotToHoldIt) {
  ASSERT_TRUE(Append("anna", 0, content_).ok());
  EXPECT_TRUE(store_->IsHeld("anna", digest_));
  EXPECT_FALSE(store_->IsHeld("bert", digest_));
  EXPECT_EQ(*Append("bert", 0, "01"), 2) << "bert must send the bytes himself";
  EXPECT_EQ(*Append("bert", 2, "23456789"), 10);
  EXPECT_TRUE(store_->IsHeld("bert", digest_));
}

TEST_F(CodeStoreTest, WhatNobodyNeedsIsRemovedAfterAWhile) {
  ASSERT_TRUE(Append("anna", 0, content_).ok());
  clock_.Advance(CodeStore::kKeep / 2);
  EXPECT_EQ(store_->Sweep(Nothing), 0);
  ASSERT_TRUE(store_->Hold("anna", digest_));
  clock_.Advance(CodeStore::kKeep * 2 / 3);
  EXPECT_EQ(store_->Sweep(Nothing), 0) << "it was asked for meanwhile";
  clock_.Advance(CodeStore::kKeep);
  EXPECT_EQ(store_->Sweep([&](const std::string& digest) { return digest == digest_; }), 0);
  EXPECT_EQ(store_->Sweep(Nothing), 1);
  EXPECT_EQ(store_->SizeOf(digest_), -1);
  EXPECT_EQ(ErrorReason(store_->Read(digest_, 0, 1).status()), error::kCodeNotFound);
  EXPECT_FALSE(store_->Hold("anna", digest_));
}

TEST_F(CodeStoreTest, ARestartKeepsWhatIsWholeAndDropsTheRest) {
  ASSERT_TRUE(Append("anna", 0, content_).ok());
  const std::string other = tls::Sha256Text("other");
  ASSERT_EQ(*store_->Append("anna", other, 5, 0, "ot"), 2);
  Open();
  EXPECT_EQ(store_->SizeOf(digest_), 10);
  EXPECT_FALSE(store_->IsHeld("anna", digest_)) << "her jobs say that she has it";
  EXPECT_EQ(store_->Sweep(Nothing), 0) << "a job may be on its way";
  EXPECT_EQ(ErrorReason(store_->Append("anna", other, 5, 2, "her").status()), "OFFSET_MISMATCH");
}

TEST_F(CodeStoreTest, AUserHasFewUploadsUnderWay) {
  absl::Status last;
  for (int i = 0; i <= CodeStore::kUploadsMax; ++i) {
    const std::string content(static_cast<size_t>(i + 2), 'x');
    last = store_->Append("anna", tls::Sha256Text(content), i + 2, 0, "x").status();
    if (i < CodeStore::kUploadsMax) {
      EXPECT_TRUE(last.ok()) << last;
    }
  }
  EXPECT_EQ(ErrorReason(last), "TOO_MANY_UPLOADS");
  EXPECT_EQ(*Append("bert", 0, content_), 10);
}

}  // namespace
}  // namespace trainyard::runtime
