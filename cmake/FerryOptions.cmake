# Compiler settings that every target of the tree shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(ferry_warnings INTERFACE)
# No contraction and no reassociation: sums and codecs must give the same bytes on every machine (docs/formats.md).
target_compile_options(ferry_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -ffp-contract=off)

set(FERRY_SANITIZE "" CACHE STRING "Sanitizers for every target, as -fsanitize takes them: address,undefined or thread")
if(FERRY_SANITIZE)
  add_compile_options(-fsanitize=${FERRY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${FERRY_SANITIZE})
endif()
