#include "server/relay/client_limits.h"

#include <gtest/gtest.h>

namespace trainyard::relay {
namespace {

TEST(ClientLimits, CountsByClientAndAltogether) {
  ClientLimits limits;
  limits.BeginHandshake("a");
  limits.BeginHandshake("b");
  limits.EndHandshake("a");
  limits.Open("a");
  EXPECT_EQ(limits.Of("a").handshakes, 0u);
  EXPECT_EQ(limits.Of("a").connections, 1u);
  EXPECT_EQ(limits.Of("b").handshakes, 1u);
  EXPECT_EQ(limits.Of("c").connections, 0u);
  EXPECT_EQ(limits.total().handshakes, 1u);
  EXPECT_EQ(limits.total().connections, 1u);
  limits.Close("a");
  limits.EndHandshake("b");
  EXPECT_EQ(limits.total().connections, 0u);
  EXPECT_EQ(limits.Of("a").connections, 0u);
}

}  // namespace
}  // namespace trainyard::relay
