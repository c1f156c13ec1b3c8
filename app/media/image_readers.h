// The readers behind read_image() and their shared code. Internal to app/media.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <span>

#include "app/media/image.h"
#include "app/media/image_header.h"
#include "hilbert/error.h"

namespace sparsereel::app {

inline constexpr const char* kImageRemedy = "name a PNG, JPEG, WebP or PPM file, or a video to continue";

/// The readers of FFmpeg that may open a picture, which can come from a stranger: those for pictures and videos in a
/// single file. Left out are readers that open other files, for playlists (hls, dash, concat) and for patterns of names
/// (image2), the reader for drawings (svg), which may take minutes, and devices.
inline constexpr const char* kReaders =
    "png_pipe,apng,jpeg_pipe,mjpeg,mpjpeg,webp_pipe,gif,bmp_pipe,tiff_pipe,exr_pipe,hdr_pipe,jpegxl_pipe,jpegxl_anim,"
    "j2k_pipe,jpegls_pipe,qoi_pipe,sgi_pipe,dds_pipe,dpx_pipe,pam_pipe,pbm_pipe,pgm_pipe,pgmyuv_pipe,ppm_pipe,pfm_pipe,"
    "phm_pipe,pcx_pipe,psd_pipe,qdraw_pipe,sunrast_pipe,xbm_pipe,xpm_pipe,xwd_pipe,cri_pipe,gem_pipe,photocd_pipe,"
    "pictor_pipe,vbn_pipe,ico,mov,matroska,avi,flv,live_flv,ivf,obu,av1,yuv4mpegpipe,nut,ogg,mpeg,mpegts,mpegvideo,"
    "m4v,h263,h264,hevc,vvc,vc1,dv,asf,mxf,swf,rm,roq,flic,smk,bink";

/// Decodes the pixels as stored in the file. Throws Error.
Image decode_image(const std::filesystem::path& path, ImageFormat format, std::span<const std::byte> file);

/// Time limit for finding the last picture of a file. In a malicious file, the search might never end.
inline constexpr std::chrono::seconds kMostSearch{60};

/// Returns the last picture of any file that FFmpeg reads. Turns it by `orientation` (as in ImageHeader) or, if that is
/// unset, by the orientation that FFmpeg reports. Throws like decode_image(), and if the search takes longer than
/// `limit`.
Image decode_last_frame(const std::filesystem::path& path, std::optional<int> orientation,
                        std::chrono::seconds limit = kMostSearch);

/// Throws Error if the picture has no pixels, or more than kMostImagePixels.
void check_image_size(const std::filesystem::path& path, int64_t height, int64_t width);

/// Returns the error for a file in which FFmpeg did not find the last picture within `limit`.
Error out_of_time(const std::filesystem::path& path, std::chrono::seconds limit);

/// Returns the image turned upright. `orientation` is as in ImageHeader.
Image turned(const Image& image, int orientation);

}  // namespace sparsereel::app
