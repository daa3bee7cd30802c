// SPDX-License-Identifier: Apache-2.0
#include "data/libraries.h"

#include <cstdio>

#include "core/build.h"
#include "core/error.h"

#if HEARTH_HAS_EXPAT
#include <expat.h>
#endif
#if HEARTH_HAS_JPEG
#include <jpeglib.h>
#endif
#if HEARTH_HAS_PNG
#include <png.h>
#endif
#if HEARTH_HAS_WEBP
#include <webp/decode.h>
#endif
#if HEARTH_HAS_ZLIB
#include <zlib.h>
#endif

namespace hearth::data {
namespace {

std::string version_of_jpeg() {
#if HEARTH_HAS_JPEG && defined(LIBJPEG_TURBO_VERSION_NUMBER)
  constexpr int number = LIBJPEG_TURBO_VERSION_NUMBER;
  return join_text("libjpeg-turbo ", number / 1000000, '.', number / 1000 % 1000, '.', number % 1000);
#elif HEARTH_HAS_JPEG
  return join_text("libjpeg ", JPEG_LIB_VERSION / 10);
#else
  return "";
#endif
}

std::string version_of_png() {
#if HEARTH_HAS_PNG
  return join_text("libpng ", png_get_libpng_ver(nullptr));
#else
  return "";
#endif
}

std::string version_of_webp() {
#if HEARTH_HAS_WEBP
  const int number = WebPGetDecoderVersion();
  return join_text("libwebp ", number >> 16, '.', number >> 8 & 255, '.', number & 255);
#else
  return "";
#endif
}

std::string version_of_zlib() {
#if HEARTH_HAS_ZLIB
  return join_text("zlib ", zlibVersion());
#else
  return "";
#endif
}

std::string version_of_expat() {
#if HEARTH_HAS_EXPAT
  const XML_Expat_Version version = XML_ExpatVersionInfo();
  return join_text("expat ", version.major, '.', version.minor, '.', version.micro);
#else
  return "";
#endif
}

}  // namespace

std::vector<FileLibrary> file_libraries() {
  return {{"JPEG", version_of_jpeg(), "JPEG files cannot be read"},
          {"PNG", version_of_png(), "PNG files cannot be read"},
          {"WebP", version_of_webp(), "WebP files cannot be read"},
          {"zlib", version_of_zlib(), "gzip-compressed datasets cannot be read"},
          {"expat", version_of_expat(), "labels in XML (Pascal VOC) cannot be read"},
          // It does not tell its version.
          {"SentencePiece", HEARTH_HAS_SENTENCEPIECE ? "libsentencepiece" : "", "SentencePiece models cannot be read"}};
}

}  // namespace hearth::data
