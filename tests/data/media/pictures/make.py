#!/usr/bin/env python3
"""Makes the pictures beside this file (all but shapes/) and decoded.npz and resized.npz, what Pillow makes of them.

Needs pillow 13.0.0, numpy, and cjpeg and jpegtran of libjpeg-turbo. shapes/ holds pictures drawn for small vision
models, and shapes/references.npz the pixels that Hugging Face's preprocessors (Pillow inside) made of them.
"""

import io
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageCms

HERE = Path(__file__).resolve().parent
WIDTH, HEIGHT = 19, 9
rng = np.random.default_rng(7)
decoded = {}


def picture(width, height, noise=8):
    y, x = np.mgrid[0:height, 0:width]
    planes = [128 + 100 * np.sin(x / 7 + y / 9), 128 + 100 * np.cos(x / 5 - y / 8), 128 + 90 * np.sin(x * y / 40)]
    values = np.stack(planes, -1)
    values[height // 3:height // 2, width // 4:width // 2] = [250, 20, 30]
    return (values + rng.normal(0, noise, values.shape)).clip(0, 255).astype(np.uint8)


def on_white(rgb, alpha):
    rgb, alpha = rgb.astype(int), alpha.astype(int)[..., None]
    return ((rgb * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)


def grey(values):
    return np.repeat(values[..., None], 3, -1).astype(np.uint8)


def keep(name, data, pixels=None):
    """Writes the file; what it decodes to is `pixels`, or what Pillow says."""
    (HERE / name).write_bytes(data)
    if pixels is None:
        pixels = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    decoded[name] = pixels


def keep_refused(name, data):
    (HERE / name).write_bytes(data)


def save(name, image, pixels=None, **options):
    suffix = Path(name).suffix[1:]
    stream = io.BytesIO()
    image.save(stream, {"jpg": "jpeg", "tif": "tiff"}.get(suffix, suffix), **options)
    keep(name, stream.getvalue(), pixels)


# ---- PNG: every depth and colour type, packed by hand, because Pillow writes few of them ----

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pack_rows(samples, depth):
    rows = samples.reshape(samples.shape[0], -1)
    if depth == 16:
        return [b"\0" + row.astype(">u2").tobytes() for row in rows]
    if depth == 8:
        return [b"\0" + row.astype(np.uint8).tobytes() for row in rows]
    bits = (rows[..., None] >> np.arange(depth - 1, -1, -1)) & 1
    return [b"\0" + np.packbits(row.reshape(-1).astype(np.uint8)).tobytes() for row in bits]


def png(samples, depth, colour_type, interlaced=False, extra=b"", width=None, height=None):
    header = struct.pack(">IIBBBBB", width or samples.shape[1], height or samples.shape[0], depth, colour_type, 0, 0,
                         int(interlaced))
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    parts = [samples[y::dy, x::dx] for x, y, dx, dy in passes] if interlaced else [samples]
    raw = b"".join(row for part in parts if part.size for row in pack_rows(part, depth))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(raw, 9))
            + chunk(b"IEND", b""))


rgb = picture(WIDTH, HEIGHT)
alpha = rng.integers(0, 256, (HEIGHT, WIDTH)).astype(np.uint8)
alpha[:2] = 0  # hidden colours
alpha[2:5] = 255
rgb16 = rgb.astype(np.uint32) * 256 + rng.integers(0, 256, rgb.shape)
alpha16 = alpha.astype(np.uint32) * 257
for interlaced in (False, True):
    suffix = "-interlaced" if interlaced else ""
    for depth in (1, 2, 4, 8, 16):
        values = (rgb16[..., 0] >> (16 - depth)).astype(np.uint32)
        eight = values >> 8 if depth == 16 else values * 255 // (2**depth - 1)
        keep(f"grey{depth}{suffix}.png", png(values, depth, 0, interlaced), grey(eight))
    for depth in (1, 2, 4, 8):
        indices = rng.integers(0, min(2**depth, 40), (HEIGHT, WIDTH))
        colours = rng.integers(0, 256, (min(2**depth, 40), 3)).astype(np.uint8)
        keep(f"palette{depth}{suffix}.png", png(indices, depth, 3, interlaced, chunk(b"PLTE", colours.tobytes())),
             colours[indices])
    keep(f"rgb8{suffix}.png", png(rgb, 8, 2, interlaced), rgb)
    keep(f"rgb16{suffix}.png", png(rgb16, 16, 2, interlaced), (rgb16 >> 8).astype(np.uint8))
    keep(f"rgba8{suffix}.png", png(np.dstack([rgb, alpha]), 8, 6, interlaced), on_white(rgb, alpha))
    keep(f"rgba16{suffix}.png", png(np.dstack([rgb16, alpha16]), 16, 6, interlaced), on_white(rgb, alpha))
    keep(f"grey-alpha8{suffix}.png", png(np.dstack([rgb[..., 0], alpha]), 8, 4, interlaced),
         on_white(grey(rgb[..., 0]), alpha))
    keep(f"grey-alpha16{suffix}.png", png(np.dstack([rgb16[..., 0], alpha16]), 16, 4, interlaced),
         on_white(grey(rgb[..., 0]), alpha))
colours = rng.integers(0, 256, (16, 3)).astype(np.uint8)
clear = rng.integers(0, 256, 10).astype(np.uint8)
indices = rng.integers(0, 16, (HEIGHT, WIDTH))
alphas = np.concatenate([clear, np.full(6, 255, np.uint8)])
keep("palette4-transparent.png",
     png(indices, 4, 3, extra=chunk(b"PLTE", colours.tobytes()) + chunk(b"tRNS", clear.tobytes())),
     on_white(colours[indices], alphas[indices]))
four = (rgb[..., 0] >> 4).astype(np.uint32)
key = int(four[0, 0])
keep("grey4-transparent.png", png(four, 4, 0, extra=chunk(b"tRNS", struct.pack(">H", key))),
     np.where((four == key)[..., None], 255, grey(four * 17)).astype(np.uint8))
key = rgb[0, 0]
keep("rgb8-transparent.png", png(rgb, 8, 2, extra=chunk(b"tRNS", struct.pack(">HHH", *map(int, key)))),
     np.where((rgb == key).all(-1)[..., None], 255, rgb).astype(np.uint8))
black_text = np.zeros((HEIGHT, WIDTH, 4), np.uint8)
black_text[1:8, 10:13, 3] = 255
keep("black-on-transparent.png", png(black_text, 8, 6), on_white(black_text[..., :3], black_text[..., 3]))
keep_refused("bad-crc.png", (lambda d: d[:-20] + bytes([d[-20] ^ 1]) + d[-19:])(png(rgb, 8, 2)))
keep_refused("missing-rows.png", png(rgb[:5], 8, 2, width=WIDTH, height=HEIGHT))
keep_refused("bomb.png", png(np.zeros((1, 40000), np.uint8), 1, 0, width=40000, height=40000))
keep_refused("lying.png", png(np.zeros((1, 6000), np.uint8), 8, 0, width=6000, height=6000))
frames = [Image.fromarray(picture(WIDTH, HEIGHT)) for _ in range(3)]
save("animated.png", frames[0], np.asarray(frames[0]), save_all=True, append_images=frames[1:])

# ---- JPEG ----

photo = Image.fromarray(picture(37, 29, 3))
for name, sampling in (("444", 0), ("422", 1), ("420", 2)):
    save(f"{name}.jpg", photo, quality=90, subsampling=sampling)
    save(f"{name}-progressive.jpg", photo, quality=90, subsampling=sampling, progressive=True)
save("restart.jpg", photo, quality=90, restart_marker_blocks=2)
save("grey.jpg", photo.convert("L"), quality=90)
save("grey-progressive.jpg", photo.convert("L"), quality=90, progressive=True)
save("rgb.jpg", photo, quality=90, keep_rgb=True)
save("cmyk.jpg", photo.convert("CMYK"), quality=90, subsampling=0)
# The same bytes read as YCCK: the last byte of the Adobe segment is the transform.
cmyk = (HERE / "cmyk.jpg").read_bytes()
adobe = cmyk.index(b"Adobe") + 11
keep("ycck.jpg", cmyk[:adobe] + b"\2" + cmyk[adobe + 1:])
# An Adobe segment without transform in a file that is RGB by nothing else.
plain = (HERE / "444.jpg").read_bytes()
app0 = 2 + 2 + int.from_bytes(plain[4:6], "big")
keep("adobe-rgb.jpg", plain[:2] + b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0" + plain[app0:])
keep("trailing-garbage.jpg", plain + b"garbage" * 3)
ppm = io.BytesIO()
photo.save(ppm, "ppm")


def cjpeg(name, *options):
    keep(name, subprocess.run(["cjpeg", "-quality", "90", *options], input=ppm.getvalue(), capture_output=True,
                              check=True).stdout)


cjpeg("440.jpg", "-sample", "1x2")
cjpeg("411.jpg", "-sample", "4x1")
cjpeg("arithmetic.jpg", "-arithmetic")
frame = plain.index(b"\xff\xc0")
keep_refused("12-bit.jpg", plain[:frame + 4] + b"\x0c" + plain[frame + 5:])
profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
save("srgb-profile.jpg", photo, quality=90, icc_profile=profile)
other = profile.replace("sRGB".encode("utf-16-be"), "wide".encode("utf-16-be"))
save("wide-profile.png", Image.fromarray(rgb), rgb, icc_profile=other)

# ---- EXIF orientations: an F of blocks of 8 pixels, so that a JPEG of it is exact ----

glyph = np.array([[1, 1, 1, 1, 0], [1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0]], np.uint8)
glyph = np.pad(glyph, ((1, 1), (1, 0)))
upright = Image.fromarray(np.kron(np.where(glyph[..., None], [200, 40, 40], [230, 230, 250]),
                                  np.ones((8, 8, 1))).astype(np.uint8))
INVERSE = {1: None, 2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
           4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90,
           7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_270}
for orientation, inverse in INVERSE.items():
    stored = upright.transpose(inverse) if inverse is not None else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    formats = [("jpg", {"quality": 90, "subsampling": 0})]
    if orientation == 6:
        formats += [("png", {}), ("webp", {"lossless": True}), ("tif", {"compression": "tiff_lzw"})]
    for suffix, options in formats:
        save(f"orientation{orientation}.{suffix}", stored, np.asarray(upright), exif=exif, **options)
jpeg_upright = np.asarray(Image.open(HERE / "orientation1.jpg"))
for orientation in INVERSE:
    decoded[f"orientation{orientation}.jpg"] = jpeg_upright

# ---- WebP, GIF, BMP, TIFF ----

rgba = Image.fromarray(np.dstack([rgb, alpha]))
soft = picture(37, 29, 2)
save("lossy.webp", Image.fromarray(soft), quality=80)
save("lossless.webp", Image.fromarray(rgb), rgb, lossless=True)
save("lossless-alpha.webp", rgba, on_white(rgb, alpha), lossless=True, exact=True)
stream = io.BytesIO()
Image.fromarray(np.dstack([soft, np.kron(np.eye(5, 5), np.ones((6, 8)))[:29, :37].astype(np.uint8) * 155 + 100])).save(
    stream, "webp", quality=80)
opened = np.asarray(Image.open(io.BytesIO(stream.getvalue())))
keep("lossy-alpha.webp", stream.getvalue(), on_white(opened[..., :3], opened[..., 3]))
save("animated.webp", frames[0], np.asarray(frames[0]), save_all=True, append_images=frames[1:], lossless=True)
few = Image.fromarray(rgb).quantize(32)
few_rgb = np.asarray(few.convert("RGB"))
save("still.gif", few, few_rgb, interlace=0)
save("interlaced.gif", Image.fromarray(soft).quantize(32), interlace=1)
first = np.asarray(few)
save("transparent.gif", few, np.where((first == first[0, 0])[..., None], 255, few_rgb).astype(np.uint8),
     transparency=int(first[0, 0]), optimize=False)
save("animated.gif", few, few_rgb, save_all=True, append_images=[Image.fromarray(picture(WIDTH, HEIGHT)).quantize(32)])
small = (HERE / "still.gif").read_bytes()  # the frame on a larger canvas, 3 from the left and 2 from the top
at = small.index(b",\0\0\0\0")
canvas = np.full((HEIGHT + 5, WIDTH + 7, 3), 255, np.uint8)
canvas[2:2 + HEIGHT, 3:3 + WIDTH] = few_rgb
keep("partial.gif", small[:6] + struct.pack("<HH", WIDTH + 7, HEIGHT + 5) + small[10:at + 1] + struct.pack("<HH", 3, 2)
     + small[at + 5:], canvas)

save("grey.bmp", Image.fromarray(rgb).convert("L"))
save("bilevel.bmp", Image.fromarray(rgb).convert("1"))
save("palette.bmp", few, few_rgb)
save("rgb.bmp", Image.fromarray(rgb), rgb)


def bmp(width, height, bits, compression, data, palette=b"", masks=b"", header_bytes=40):
    header = struct.pack("<IiiHHIIiiII", header_bytes, width, height, 1, bits, compression, len(data), 2835, 2835,
                         len(palette) // 4, 0)
    header += masks + bytes(max(0, header_bytes - 40 - len(masks)))
    at = 14 + len(header) + len(palette)
    return b"BM" + struct.pack("<IHHI", at + len(data), 0, 0, at) + header + palette + data


def padded(rows):
    return b"".join(row + bytes(-len(row) % 4) for row in rows)


keep("top-down.bmp", bmp(WIDTH, -HEIGHT, 24, 0, padded(row[:, ::-1].tobytes() for row in rgb)), rgb)
five = (rgb >> 3).astype(np.uint16)
packed = (five[..., 0] << 10 | five[..., 1] << 5 | five[..., 2]).astype("<u2")
keep("rgb555.bmp", bmp(WIDTH, HEIGHT, 16, 0, padded(row.tobytes() for row in packed[::-1])))
six = (rgb[..., 1] >> 2).astype(np.uint16)
packed = (five[..., 0] << 11 | six << 5 | five[..., 2]).astype("<u2")
keep("rgb565.bmp", bmp(WIDTH, HEIGHT, 16, 3, padded(row.tobytes() for row in packed[::-1]),
                       masks=struct.pack("<III", 0xF800, 0x07E0, 0x001F)))
bgra = np.dstack([rgb[..., ::-1], alpha])
keep("rgba.bmp", bmp(WIDTH, HEIGHT, 32, 3, bgra[::-1].tobytes(), header_bytes=108,
                     masks=struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)), on_white(rgb, alpha))
keep("rgbx.bmp", bmp(WIDTH, HEIGHT, 32, 0, bgra[::-1].tobytes()), rgb)
sixteen = np.column_stack([colours[:, ::-1], np.zeros(16, np.uint8)]).tobytes()
nibbles = np.pad(indices, ((0, 0), (0, 1))).astype(np.uint8)
packed = nibbles[:, ::2] << 4 | nibbles[:, 1::2]
keep("palette4.bmp", bmp(WIDTH, HEIGHT, 4, 0, padded(row.tobytes() for row in packed[::-1]), sixteen), colours[indices])
runs, shown = b"", np.zeros((HEIGHT, WIDTH), int)
for y in range(HEIGHT):  # runs of 5, then literals, in the stored order
    value = y % 16
    literals = (np.arange(WIDTH - 10) * 3 + y) % 16
    runs += bytes([5, value, 5, 15 - value, 0, WIDTH - 10]) + literals.astype(np.uint8).tobytes()
    runs += bytes((WIDTH - 10) % 2) + b"\0\0"
    shown[HEIGHT - 1 - y] = [value] * 5 + [15 - value] * 5 + list(literals)
keep("rle8.bmp", bmp(WIDTH, HEIGHT, 8, 1, runs + b"\0\1", sixteen), colours[shown])
runs, shown = b"", np.zeros((HEIGHT, WIDTH), int)
for y in range(0, HEIGHT, 2):  # every second row, after a skip of 3 pixels; one run of alternating colours
    runs += bytes([0, 2, 3, 0, 9, 0x25, 0, 5, 0x12, 0x34, 0x50, 0]) + bytes([0, 0] * (2 if y + 2 < HEIGHT else 1))
    shown[HEIGHT - 1 - y, 3:17] = [2, 5] * 4 + [2] + [1, 2, 3, 4, 5]
keep("rle4.bmp", bmp(WIDTH, HEIGHT, 4, 2, runs + b"\0\1", sixteen), colours[shown])

save("rgb.tif", Image.fromarray(rgb), rgb)
save("rgb-lzw.tif", Image.fromarray(rgb), rgb, compression="tiff_lzw")
save("rgb-deflate.tif", Image.fromarray(rgb), rgb, compression="tiff_adobe_deflate")
save("rgb-packbits.tif", Image.fromarray(rgb), rgb, compression="packbits")
save("rgba.tif", rgba, on_white(rgb, alpha))
save("grey.tif", Image.fromarray(rgb).convert("L"))
save("grey16.tif", Image.fromarray(rgb16[..., 0].astype(np.uint16)), grey(rgb[..., 0]))
save("bilevel.tif", Image.fromarray(rgb).convert("1"))
save("bilevel-g4.tif", Image.fromarray(rgb).convert("1"), compression="group4")
save("cmyk.tif", Image.fromarray(rgb).convert("CMYK"))
save("pages.tif", frames[0], np.asarray(frames[0]), save_all=True, append_images=frames[1:])
save("palette.tif", few)
save("jpeg.tif", Image.fromarray(rgb), compression="jpeg")
save("float.tif", Image.fromarray(rgb[..., 0].astype(np.float32)), rgb)

for name in ("arithmetic.jpg", "palette.tif", "jpeg.tif", "float.tif"):
    del decoded[name]  # refused
np.savez_compressed(HERE / "decoded.npz", **decoded)

# ---- Resizing ----

resized = {}
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
column = np.stack([np.arange(20000) % 251, np.arange(20000) // 80, np.arange(20000) * 7 % 256], -1).astype(np.uint8)
sources = {"photo": Image.fromarray(picture(61, 47, 4)), "column": Image.fromarray(column[:, None]),
           "row": Image.fromarray(column[None]), "dot": Image.fromarray(rgb[:1, :1]),
           "small": Image.fromarray(rgb[:7, :3])}
sources["grey"] = sources["photo"].convert("L")
for name, image in sources.items():
    image.save(HERE / f"resize-{name}.png", optimize=True)
STRETCH = {"photo": [(40, 36), (7, 5), (77, 21), (20, 64), (1, 1), (61, 20), (60, 30)], "column": [(16, 20)], "row": [(20, 16)],
           "dot": [(9, 9)], "small": [(16, 16)], "grey": [(40, 36), (77, 21)]}
CROP = {"photo": [(24, 24), (40, 16), (16, 40), (66, 52)], "column": [(16, 12)], "row": [(12, 16)], "dot": [(8, 9)],
        "small": [(16, 16)], "grey": [(24, 24)]}
for filter_name, filter in FILTERS.items():
    for name, sizes in STRETCH.items():
        for width, height in sizes:
            resized[f"{name} stretch {filter_name} {width} {height}"] = np.asarray(
                sources[name].resize((width, height), filter).convert("RGB"))
    for name, sizes in CROP.items():
        for width, height in sizes:
            image = sources[name]
            scale = max(width / image.width, height / image.height)
            whole = image.resize((int(image.width * scale + 0.5), int(image.height * scale + 0.5)), filter)
            left, top = (whole.width - width) // 2, (whole.height - height) // 2
            resized[f"{name} center_crop {filter_name} {width} {height}"] = np.asarray(
                whole.crop((left, top, left + width, top + height)).convert("RGB"))
np.savez_compressed(HERE / "resized.npz", **resized)
