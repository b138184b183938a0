// Tests CRC-32C by the vectors of RFC 3720.
#include "common/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace trainyard {
namespace {

TEST(Crc32c, HasTheValuesOfTheRfc) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283U);
}

}  // namespace
}  // namespace trainyard
