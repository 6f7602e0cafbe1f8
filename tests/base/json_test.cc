#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace dovetail {
namespace {

TEST(Json, KeepsTheOrderOfMembers) {
  EXPECT_EQ(parse_json(R"({"b":1,"a":[true,null,1.5,"x",{"c":-2}]})", "t").dump(),
            R"({"b":1,"a":[true,null,1.5,"x",{"c":-2}]})");
}

TEST(Json, RefusesWhatALaxReaderTakes) {
  const std::string deep(5000, '[');
  for (std::string text :
       {std::string(R"({"a":1,"a":2})"), std::string(R"({"a":{"b":1,"b":1}})"), std::string("[1,]"),
        std::string("[1] x"), std::string(""), std::string("\xef\xbb\xbf{}"), std::string("\"\xff\""),
        std::string(R"("\ud800")"), std::string("NaN"), std::string("01"), std::string("1e400"),
        std::string("// c\n1"), deep}) {
    EXPECT_THROW(parse_json(text, "t"), Error) << text.substr(0, 20);
  }
}

TEST(Json, RefusesNumbersWhoseFractionADoubleLoses) {
  for (const char* text : {"16000.0000000000001", "9007199254740993.5", "1e-400", "15e-20000000000000000000",
                           "0.99999999999999999999", "100000000000000000000001e-1"}) {
    EXPECT_THROW(parse_json(text, "t"), Error) << text;
  }
  for (const char* text : {"1.0", "1e0", "1200e-2", "12.50e1", "-0.0", "0e-999999999999", "1.5", "1e300",
                           "0.1", "10.00", "0.00000001e8"}) {
    EXPECT_NO_THROW(parse_json(text, "t")) << text;
  }
  EXPECT_EQ(parse_json("1200e-2", "t").get<double>(), 12.0);
}

TEST(Json, NamesTheDocumentAndThePlace) {
  try {
    parse_json("{\"a\": tru}", "x.json");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kMalformed);
    EXPECT_NE(std::string(error.what()).find("x.json: not valid JSON at byte"), std::string::npos)
        << error.what();
  }
}

TEST(Json, SaysWhereTheTextIsNotUtf8) {
  const auto error = [](const std::string& text) -> std::string {
    try {
      parse_json(text, "x.json");
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(error("{\"a\": 1,\n \"b\": \"x\xff\"}"),
            "x.json: not valid JSON at byte 17: the text is not UTF-8: \\xff");
  EXPECT_EQ(error("{\"a\xed\xa0\x80\": 1}"),
            "x.json: not valid JSON at byte 3: the text is not UTF-8: \\xed");
  EXPECT_EQ(error("[1]\n\xc3"), "x.json: not valid JSON at byte 4: the text is not UTF-8: \\xc3");
  // What comes first is said.
  EXPECT_NE(error("[1,] \xff").find("not valid JSON at byte 3: line 1"), std::string::npos)
      << error("[1,] \xff");
}

TEST(Json, SaysThatADocumentIsEmpty) {
  for (const char* text : {"", " \n"}) {
    try {
      parse_json(text, "x.json");
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "x.json: is empty; JSON is expected");
    }
  }
}

TEST(Json, ManyMembersAreReadInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += (i ? ",\"" : "\"") + std::to_string(i) + "\":0";
  EXPECT_EQ(parse_json(text + "}", "t").size(), 100'000u);
}

}  // namespace
}  // namespace dovetail
