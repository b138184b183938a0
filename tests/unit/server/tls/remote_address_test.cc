#include "server/tls/remote_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>

namespace trainyard::tls {
namespace {

sockaddr_storage V6(const char* text, uint16_t port) {
  sockaddr_in6 name{};
  name.sin6_family = AF_INET6;
  name.sin6_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET6, text, &name.sin6_addr), 1);
  sockaddr_storage storage{};
  std::memcpy(&storage, &name, sizeof(name));
  return storage;
}

TEST(RemoteAddress, NamesAddressesAndTheirNetworks) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(1234);
  ASSERT_EQ(inet_pton(AF_INET, "203.0.113.7", &v4.sin_addr), 1);
  sockaddr_storage storage{};
  std::memcpy(&storage, &v4, sizeof(v4));
  EXPECT_EQ(DescribeAddress(storage).text, "203.0.113.7:1234");
  EXPECT_EQ(DescribeAddress(storage).key, "203.0.113.7");
  const RemoteAddress v6 = DescribeAddress(V6("2001:db8:1:2:3:4:5:6", 80));
  EXPECT_EQ(v6.text, "[2001:db8:1:2:3:4:5:6]:80");
  EXPECT_EQ(v6.key, "2001:db8:1:2::/64");
  const RemoteAddress mapped = DescribeAddress(V6("::ffff:203.0.113.7", 1234));
  EXPECT_EQ(mapped.text, "203.0.113.7:1234");
  EXPECT_EQ(mapped.key, "203.0.113.7");
}

TEST(RemoteAddress, ASocketWithoutAnAddressIsUnknown) {
  EXPECT_EQ(RemoteAddressOf(-1).key, "unknown");
}

}  // namespace
}  // namespace trainyard::tls
