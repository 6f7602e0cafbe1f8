// make_fake_package FOLDER [FROM TO]…: the package of the fake library, with edits of the library's bytes.
#include <cstdio>
#include <exception>

#include "fake_package.h"

int main(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0) {
    std::fputs("usage: make_fake_package FOLDER [FROM TO]...\n", stderr);
    return 2;
  }
  try {
    dovetail::test::Edits edits;
    for (int i = 2; i + 1 < argc; i += 2) edits.emplace_back(argv[i], argv[i + 1]);
    dovetail::test::write_fake_package(argv[1], edits);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
