#include "engine/stop_strings.h"

#include <gtest/gtest.h>

namespace dovetail::engine {
namespace {

TEST(StopStrings, WithoutStopsEverythingPasses) {
  StopStrings stops({""});
  EXPECT_EQ(stops.push("abc"), "abc");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, HoldsBackWhatCouldBeAStop) {
  StopStrings stops({"STOP"});
  EXPECT_EQ(stops.push("a S"), "a ");
  EXPECT_EQ(stops.push("T"), "");
  EXPECT_EQ(stops.push("x"), "STx");
  EXPECT_EQ(stops.push("STO"), "");
  EXPECT_EQ(stops.finish(), "STO");
  EXPECT_FALSE(stops.found());
}

TEST(StopStrings, CutsAtTheStop) {
  StopStrings stops({"STOP"});
  EXPECT_EQ(stops.push("ab ST"), "ab ");
  EXPECT_EQ(stops.push("OP cd"), "");
  EXPECT_TRUE(stops.found());
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, EarliestOfSeveralWins) {
  StopStrings stops({"bc", "abcd"});
  EXPECT_EQ(stops.push("xabcd"), "x");
  EXPECT_TRUE(stops.found());
}

TEST(StopStrings, OverlappingBeginnings) {
  StopStrings stops({"aab"});
  EXPECT_EQ(stops.push("aaa"), "a");
  EXPECT_EQ(stops.push("b"), "");
  EXPECT_TRUE(stops.found());
}

TEST(StopStrings, EveryCutGivesTheSameText) {
  const std::string text = "one ## two #\n#\n three ### end";
  for (const std::string& stop :
       {std::string("##\n"), std::string("###"), std::string("#\n#\n"), std::string("e")}) {
    const std::string expected = text.substr(0, text.find(stop));
    for (size_t a = 0; a <= text.size(); ++a) {
      for (size_t b = a; b <= text.size(); ++b) {
        StopStrings stops({stop});
        std::string shown = stops.push(text.substr(0, a));
        shown += stops.push(text.substr(a, b - a));
        shown += stops.push(text.substr(b));
        shown += stops.finish();
        ASSERT_EQ(shown, expected) << stop << " " << a << " " << b;
      }
    }
  }
}

}  // namespace
}  // namespace dovetail::engine
