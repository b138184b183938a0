// Tests that a sync that failed is never trusted. After a failure, Linux counts the pages as
// written, so the next sync of the same file succeeds although the bytes may not be on the disk.
//
// The program has its own fsync and fdatasync, which the linker takes instead of those of the C
// library.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>

#include "common/base/files.h"
#include "common/base/hash.h"
#include "server/runtime/blob_store.h"
#include "server/runtime/log_store.h"
#include "tests/testing/temp_dir.h"

namespace {

// The sync with this number fails, counted down to 0; negative if none does.
int fails_in = -1;

int Sync(long call, int fd) {
  if (fails_in >= 0 && fails_in-- == 0) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(syscall(call, fd));
}

}  // namespace

extern "C" int fsync(int fd) {
  return Sync(SYS_fsync, fd);
}
extern "C" int fdatasync(int fd) {
  return Sync(SYS_fdatasync, fd);
}

namespace trainyard::runtime {
namespace {

TEST(FailingSync, OfALogDropsWhatWasNotAcknowledged) {
  testing::TempDir dir;
  LogStore logs(dir.File("logs"));
  const LogId log = {{JobId{12}, 1}, 3};
  ASSERT_EQ(*logs.Append(log, 0, "hello "), 6);
  fails_in = 0;
  EXPECT_FALSE(logs.Append(log, 6, "world").ok());
  EXPECT_EQ(*logs.Size(log), 6) << "the bytes must be sent, written and synced again";
  EXPECT_EQ(*logs.Append(log, 6, "world"), 11);
  EXPECT_EQ(*logs.Read(log, 0, 100), "hello world");
}

// The first append syncs the file and three folders that name it.
TEST(FailingSync, OfTheFirstBytesOrTheirFoldersBeginsAnew) {
  for (int call = 0; call < 4; ++call) {
    testing::TempDir dir;
    LogStore logs(dir.File("logs"));
    const LogId log = {{JobId{12}, 1}, 3};
    // The folders are there already, so that only the syncs of the log count.
    ASSERT_TRUE(logs.Append({log.attempt, 7}, 0, "x").ok());
    fails_in = call;
    EXPECT_FALSE(logs.Append(log, 0, "hello").ok()) << call;
    EXPECT_EQ(fails_in, -1);
    EXPECT_EQ(*logs.Size(log), 0) << call;
    EXPECT_EQ(*logs.Append(log, 0, "hello"), 5) << call;
  }
}

const UploadId kUpload = {{JobId{12}, 1}, 30};

// Uploads and seals the file. Returns the first error.
absl::Status Store(BlobStore& blobs, const core::CheckpointFile& file, const std::string& content) {
  for (size_t sent = 0; sent < content.size();) {
    const auto end =
        blobs.Append(kUpload, file, static_cast<int64_t>(sent), content.substr(sent, 4));
    if (!end.ok()) return end.status();
    sent = static_cast<size_t>(*end);
  }
  return blobs.Seal(kUpload, {file}).status();
}

TEST(FailingSync, OfACheckpointCountsNothingAsThere) {
  const std::string content = "weights";
  const core::CheckpointFile file = {"model.safetensors", 7, ContentHash(content)};
  // The file, the folder of folders, and the folder. Appends of a small file wait for no sync.
  constexpr int kSyncs = 3;
  constexpr int kFolderOfFolders = 1;
  for (int call = 0; call < kSyncs; ++call) {
    testing::TempDir dir;
    const auto blobs = *BlobStore::Open(dir.path());
    fails_in = call;
    EXPECT_FALSE(Store(*blobs, file, content).ok()) << call;
    EXPECT_EQ(fails_in, -1) << call;
    // The bytes of the upload were synced before its name was.
    EXPECT_EQ(*blobs->Append(kUpload, file, 0, ""), call == kFolderOfFolders ? 7 : 0) << call;
    EXPECT_FALSE(blobs->Read(file.hash, 0, 100).ok()) << call;
    EXPECT_TRUE(Store(*blobs, file, content).ok()) << call;
    EXPECT_EQ(*blobs->Read(file.hash, 0, 100), content) << call;
  }
}

TEST(FailingSync, InTheMiddleOfALargeUploadDropsIt) {
  const std::string content((size_t{32} << 20) + 5, 'w');
  const core::CheckpointFile file = {"model.safetensors", static_cast<int64_t>(content.size()),
                                     ContentHash(content)};
  testing::TempDir dir;
  const auto blobs = *BlobStore::Open(dir.path());
  ASSERT_EQ(*blobs->Append(kUpload, file, 0, content.substr(0, 10)), 10);
  fails_in = 0;
  EXPECT_FALSE(blobs->Append(kUpload, file, 10, content.substr(10)).ok());
  EXPECT_EQ(fails_in, -1) << "each 32 MiB are synced";
  EXPECT_EQ(*blobs->Append(kUpload, file, 0, ""), 0);
  EXPECT_EQ(*blobs->Append(kUpload, file, 0, content), file.size);
  EXPECT_TRUE(blobs->Seal(kUpload, {file}).ok());
}

}  // namespace
}  // namespace trainyard::runtime
