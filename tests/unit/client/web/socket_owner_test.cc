// Tests whose a connection is.
#include "client/web/socket_owner.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/link/loopback.h"

namespace trainyard::web {
namespace {

constexpr char kTable[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout\n"
    "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1\n"
    "   1: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 "
    "2\n";

TEST(SocketOwner, IsReadFromTheTable) {
  EXPECT_EQ(OwnerIn(kTable, "0100007F:C350", "0100007F:1F90"), uid_t{1001});
  EXPECT_EQ(OwnerIn(kTable, "0100007F:C351", "0100007F:1F90"), std::nullopt);
  EXPECT_EQ(OwnerIn("", "0100007F:C350", "0100007F:1F90"), std::nullopt);
}

TEST(SocketOwner, OfARealConnectionIsThisUser) {
  const auto listener = link::ListenOnLoopback(0, "");
  ASSERT_TRUE(listener.ok()) << listener.status();
  const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(listener->port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const UniqueFd accepted(accept4(listener->socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(accepted.valid());
  EXPECT_EQ(OwnerOfOtherEnd(accepted.get()), geteuid());

  const auto taken = link::ListenOnLoopback(listener->port, "choose another one");
  EXPECT_FALSE(taken.ok());
  EXPECT_NE(taken.status().message().find("choose another one"), std::string::npos);
}

}  // namespace
}  // namespace trainyard::web
