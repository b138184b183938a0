// Tests what the journal is sent, with sockets in its place.
#include "common/base/journal.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "common/base/files.h"
#include "tests/testing/temp_dir.h"

namespace trainyard {
namespace {

UniqueFd Bound(int type, const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(type != SOCK_STREAM || listen(fd.get(), 1) == 0);
  return fd;
}

UniqueFd ConnectedTo(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

TEST(JournalTest, AnEntryHasItsFieldsUnderNamesOfTheirOwn) {
  EXPECT_EQ(JournalEntry(LOG_WARNING, "trainyard-worker", "attempt failed",
                         {{"attempt", "jobs/3/attempts/2"}, {"why-not", "x=y"}}),
            "PRIORITY=4\nSYSLOG_IDENTIFIER=trainyard-worker\n"
            "MESSAGE=attempt failed attempt=jobs/3/attempts/2 why-not=x=y\n"
            "TRAINYARD_ATTEMPT=jobs/3/attempts/2\nTRAINYARD_WHY_NOT=x=y\n");
}

TEST(JournalTest, ANewlineForgesNoField) {
  const std::string entry = JournalEntry(LOG_ERR, "p", "m", {{"error", "a\nPRIORITY=0"}});
  using std::string_literals::operator""s;
  EXPECT_EQ(entry,
            "PRIORITY=3\nSYSLOG_IDENTIFIER=p\n"
            "MESSAGE\n\x14\0\0\0\0\0\0\0m error=a\nPRIORITY=0\n"
            "TRAINYARD_ERROR\n\x0c\0\0\0\0\0\0\0a\nPRIORITY=0\n"s);
}

TEST(JournalTest, IsFoundBehindTheOutputOfAUnitAlone) {
  const testing::TempDir folder;
  const UniqueFd stdout_socket = Bound(SOCK_STREAM, folder.File("stdout"));
  const UniqueFd other = Bound(SOCK_STREAM, folder.File("other"));
  EXPECT_TRUE(Journal::Behind(ConnectedTo(folder.File("stdout")).get(), folder.path()).has_value());
  EXPECT_FALSE(Journal::Behind(ConnectedTo(folder.File("other")).get(), folder.path()).has_value());
  EXPECT_FALSE(Journal::Behind(ConnectedTo(folder.File("stdout")).get()).has_value());
  EXPECT_FALSE(Journal::Behind(-1, folder.path()).has_value());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  EXPECT_FALSE(Journal::Behind(write_end.get(), folder.path()).has_value());
}

TEST(JournalTest, EntriesAreSentOrRefused) {
  const testing::TempDir folder;
  const UniqueFd stdout_socket = Bound(SOCK_STREAM, folder.File("stdout"));
  const auto journal = Journal::Behind(ConnectedTo(folder.File("stdout")).get(), folder.path());
  ASSERT_TRUE(journal.has_value());
  EXPECT_FALSE(journal->Send("MESSAGE=lost\n")) << "nobody is there";
  const UniqueFd entries = Bound(SOCK_DGRAM, folder.File("socket"));
  EXPECT_TRUE(journal->Send("MESSAGE=first\n"));
  std::array<char, 64> text{};
  const ssize_t length = recv(entries.get(), text.data(), text.size(), 0);
  EXPECT_EQ(std::string(text.data(), static_cast<size_t>(length)), "MESSAGE=first\n");
  EXPECT_FALSE(journal->Send(std::string(16 << 20, 'x'))) << "no datagram holds so much";
}

}  // namespace
}  // namespace trainyard
