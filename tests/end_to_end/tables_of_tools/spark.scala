val out = sys.env("OUT")
spark.conf.set("spark.sql.session.timeZone", "UTC")
val rows = spark.sql("""
  select format_string('%02d.png', i) as image,
         if(i % 4 = 0, 'test', 'train') as split,
         if(i % 2 = 1, 'A/B', null) as site,
         if(i = 5, null, named_struct('id', i div 3, 'age', cast(30 + i as int))) as patient,
         transform(filter(array(0, 1), j -> j < i % 3),
                   j -> named_struct('bbox', array(1f, 2f, cast(3 + j as float), 4f), 'category', if(j = 1, 'cat', 'dog'))) as objects,
         if(i = 7, null, date_add(date'2024-01-01', cast(i as int))) as taken,
         timestamp_millis(1704110400000 + i * 1000 + (i % 2) * 250) as stored,
         cast(i + 0.25 as decimal(10, 2)) as dose,
         cast(i * 10 as decimal(38, 0)) as visit
  from (select id as i from range(12))""").coalesce(1)
rows.write.mode("overwrite").partitionBy("split", "site").parquet(out + "/parquet")
rows.select("image", "split", "objects.category").write.mode("overwrite").json(out + "/json")
rows.select("image", "split", "dose").write.mode("overwrite").option("header", true).csv(out + "/csv")
System.exit(0)
